// Package statstest checks that the structs of Stats methods describe their fields.
package statstest

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
)

// Check fails the test for each field of the structs that lacks a key, help or a unit, or that
// telemetry cannot take. A field with the key "-" is no counter.
func Check(t testing.TB, stats ...any) {
	t.Helper()
	for _, s := range stats {
		check(t, reflect.TypeOf(s))
	}
}

func check(t testing.TB, of reflect.Type) {
	t.Helper()
	keys := map[string]bool{}
	for i := range of.NumField() {
		f := of.Field(i)
		where := of.String() + "." + f.Name
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if key == "-" {
			continue
		}
		if key == "" || keys[key] {
			t.Errorf("%s: key %q is empty or stands twice", where, key)
		}
		keys[key] = true
		help := f.Tag.Get("help")
		should.Hold(t, strings.HasSuffix(help, ".") && len(strings.Fields(help)) >= 2, "%s: help is %q, want a sentence", where, help)
		should.Hold(t, f.Tag.Get("unit") != "", "%s has no unit", where)
		if kind := f.Tag.Get("kind"); kind != "" && kind != "gauge" {
			t.Errorf("%s: kind is %q", where, kind)
		}
		inner := f.Type
		for inner.Kind() == reflect.Slice || inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Array {
			inner = inner.Elem()
		}
		switch {
		case inner.Kind() == reflect.Struct:
			check(t, inner)
		case inner.Kind() != reflect.Uint64 && inner != reflect.TypeFor[time.Duration]():
			t.Errorf("%s is a %v, want uint64, time.Duration or a struct of them", where, f.Type)
		}
	}
}
