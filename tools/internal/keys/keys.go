// Package keys writes the paragraph of a command's help about its JSON from the struct that the
// command prints.
package keys

import (
	"encoding"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
)

// Of returns the paragraph "JSON keys: …" about a report, a struct. Keys come from the tags json,
// in the order of the fields; a tag help adds words in parentheses, before the keys below the
// field's own.
func Of(report any) string { return "JSON keys: " + List(report) + "." }

// List returns the keys of a report as Of has them, for a paragraph that says more.
func List(report any) string { return list(reflect.TypeOf(report), nil) }

// list returns the keys of a type, empty if it has none. Types in above contain it: their keys are
// listed once.
func list(t reflect.Type, above []reflect.Type) string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || slices.Contains(above, t) || encodesItself(t) {
		return ""
	}
	above = append(above, t)
	var keys []string
	for i := range t.NumField() {
		if k := key(t.Field(i), above); k != "" {
			keys = append(keys, k)
		}
	}
	return strings.Join(keys, ", ")
}

// key returns a field's key, with its help and the keys below; empty for a field that is not printed.
func key(f reflect.StructField, above []reflect.Type) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	below := list(f.Type, above)
	if f.Anonymous && name == "" {
		return below
	}
	if !f.IsExported() || name == "-" {
		return ""
	}
	if name == "" {
		name = f.Name
	}
	help := f.Tag.Get("help")
	switch {
	case help == "" && below == "":
		return name
	case help != "" && below != "":
		help += ": "
	}
	return name + " (" + help + below + ")"
}

// encodesItself says whether a type decides about its JSON, as times do.
func encodesItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[json.Marshaler]()) || p.Implements(reflect.TypeFor[encoding.TextMarshaler]())
}
