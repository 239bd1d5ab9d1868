package cmdtable

import (
	"encoding"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
)

// Keys lists the JSON keys of a report, a struct or a slice of structs, for help. Keys come from the
// tags json, in the order of the fields; a tag help adds words in parentheses, before the keys below
// the field's own.
func Keys(report any) string {
	t := reflect.TypeOf(report)
	return (&writer{listed: map[reflect.Type]string{t: "the whole"}}).list(t)
}

// writer writes about one report. listed has the key below which the keys of a type were listed: they
// are listed once.
type writer struct{ listed map[reflect.Type]string }

// list returns the keys of a type that has fields, and else nothing.
func (w *writer) list(t reflect.Type) string {
	if t = fieldsOf(t); t == nil {
		return ""
	}
	var keys []string
	for i := range t.NumField() {
		if k := w.key(t.Field(i)); k != "" {
			keys = append(keys, k)
		}
	}
	return strings.Join(keys, ", ")
}

// key returns a field's key, with its help and the keys below; empty for a field that is not printed.
func (w *writer) key(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if f.Anonymous && name == "" {
		return w.list(f.Type)
	}
	if !f.IsExported() || name == "-" {
		return ""
	}
	if name == "" {
		name = f.Name
	}
	said := []string{f.Tag.Get("help")}
	if t := fieldsOf(f.Type); t != nil {
		if like := w.listed[t]; like != "" {
			said = append(said, "as "+like)
		} else {
			w.listed[t] = name
			said = append(said, w.list(t))
		}
	}
	if said = slices.DeleteFunc(said, func(s string) bool { return s == "" }); len(said) == 0 {
		return name
	}
	return name + " (" + strings.Join(said, ": ") + ")"
}

// fieldsOf returns the struct that a type is, refers to or holds many of; nil if there is none, or if
// that decides about its JSON, as times do.
func fieldsOf(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Array || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	p := reflect.PointerTo(t)
	if t.Kind() != reflect.Struct || p.Implements(reflect.TypeFor[json.Marshaler]()) || p.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		return nil
	}
	return t
}
