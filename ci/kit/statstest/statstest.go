// Package statstest checks the tags of structs of counters, which telemetry reads.
package statstest

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

// Check checks each field of the structs, and of structs inside them. A field is a uint64 or a
// time.Duration. It has a JSON key, a sentence of help, and a unit; one that is no counter is of
// kind gauge. A field without a JSON key ("-") is no metric.
func Check(t *testing.T, stats ...any) {
	t.Helper()
	for _, s := range stats {
		check(t, reflect.TypeOf(s))
	}
}

func check(t *testing.T, s reflect.Type) {
	t.Helper()
	for i := range s.NumField() {
		f := s.Field(i)
		key := f.Tag.Get("json")
		switch {
		case key == "-":
			continue
		case f.Type == reflect.TypeFor[time.Duration](), f.Type.Kind() == reflect.Uint64:
		case f.Type.Kind() == reflect.Struct:
			check(t, f.Type)
			continue
		default:
			t.Errorf("%v.%s is of type %v", s, f.Name, f.Type)
		}
		help := f.Tag.Get("help")
		if key == "" || !strings.HasSuffix(help, ".") || f.Tag.Get("unit") == "" {
			t.Errorf("%v.%s: key %q, help %q, unit %q", s, f.Name, key, help, f.Tag.Get("unit"))
		}
		if kind := f.Tag.Get("kind"); kind != "" && kind != "gauge" {
			t.Errorf("%v.%s is of kind %q", s, f.Name, kind)
		}
	}
}
