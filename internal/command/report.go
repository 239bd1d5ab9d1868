package command

import (
	"cmp"
	"encoding"
	"fmt"
	"io"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Report prints a report, a struct or a slice of structs: as JSON, or by the same keys for people.
func (e *Env) Report(report any) error {
	if e.JSON {
		return e.PrintJSON(report)
	}
	return Text(e.Stdout, report)
}

// ReportBeside is Report of a command that writes a file: where that is stdout, by the name -, the report goes to stderr.
func (e *Env) ReportBeside(file string, report any) error {
	if file == "-" {
		return Text(e.Stderr, report)
	}
	return e.Report(report)
}

// Text writes a report for people. The tag text says how a field is written: - not at all, count by the number of its elements,
// flat in the place where it stands, with its own key and a dot before its keys, some only if it is not zero. What JSON leaves out
// since it is empty is not written, nor a column that has nothing else.
func Text(w io.Writer, report any) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	v := held(reflect.ValueOf(report))
	if v.Kind() == reflect.Slice {
		writeList(t, "", "", v)
	} else {
		writeFields(t, "", v)
	}
	return t.Flush()
}

// field is one that is written of a struct.
type field struct {
	key  string
	of   reflect.Value // none for what is empty
	left bool          // JSON leaves it out
}

// fieldsOf are those of a struct, with those of the structs that are embedded in it.
func fieldsOf(v reflect.Value) (all []field) {
	for i := range v.NumField() {
		f, of := v.Type().Field(i), held(v.Field(i))
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		left := (strings.Contains(options, "omitempty") || f.Tag.Get("text") == "some") && v.Field(i).IsZero()
		switch text := f.Tag.Get("text"); {
		case f.Anonymous && name == "" && (of.Kind() == reflect.Struct || !of.IsValid()):
			if of.IsValid() {
				all = append(all, fieldsOf(of)...)
			}
		case name == "-" || text == "-" || !f.IsExported():
		case left:
			all = append(all, field{key: name, left: true})
		case text == "count":
			all = append(all, field{key: name, of: reflect.ValueOf(of.Len())})
		case text == "flat":
			for _, in := range fieldsOf(of) {
				all = append(all, field{name + "." + in.key, in.of, in.left})
			}
		default:
			all = append(all, field{key: cmp.Or(name, f.Name), of: of})
		}
	}
	return all
}

// writeFields writes the fields of a struct, a line or more each.
func writeFields(w io.Writer, indent string, v reflect.Value) {
	for _, f := range fieldsOf(v) {
		writeValue(w, indent, f.key, f.of)
	}
}

// writeValue writes what stands under a key. Nothing is written of what is empty.
func writeValue(w io.Writer, indent, key string, v reflect.Value) {
	text, is := scalar(v)
	switch {
	case is && text != "":
		fmt.Fprintf(w, "%s%s\t%s\n", indent, key, text)
	case is:
	case v.Kind() == reflect.Struct:
		fmt.Fprintf(w, "%s%s\n", indent, key)
		writeFields(w, indent+"  ", v)
	case v.Kind() == reflect.Map:
		byName := map[string]reflect.Value{}
		for k, of := range v.Seq2() {
			if of = held(of); of.IsValid() && !of.IsZero() {
				byName[fmt.Sprint(k)] = of
			}
		}
		if len(byName) > 0 {
			fmt.Fprintf(w, "%s%s\n", indent, key)
		}
		for _, name := range slices.Sorted(maps.Keys(byName)) {
			writeValue(w, indent+"  ", name, byName[name])
		}
	case v.Kind() == reflect.Slice || v.Kind() == reflect.Array:
		writeList(w, indent, key, v)
	}
}

// writeList writes elements: in a line, in a table below their keys, or, of those that hold more, below each other.
func writeList(w io.Writer, indent, key string, v reflect.Value) {
	if words, are := words(v); are && len(words) > 0 {
		fmt.Fprintf(w, "%s%s\t%s\n", indent, key, strings.Join(words, ", "))
		return
	}
	var rows [][]string // the keys first
	for i := range v.Len() {
		e := held(v.Index(i))
		keys, texts, flat := cells(e)
		if !flat {
			fmt.Fprintf(w, "%s%s\n", indent, strings.TrimSpace(fmt.Sprint(key, " ", i)))
			writeFields(w, indent+"  ", e)
			continue
		}
		if rows == nil {
			rows = append(rows, keys)
		}
		rows = append(rows, texts)
	}
	if rows != nil && key != "" {
		fmt.Fprintf(w, "%s%s\n", indent, key)
		indent += "  "
	}
	for _, row := range rows {
		line := indent
		for i, text := range row {
			if slices.ContainsFunc(rows[1:], func(other []string) bool { return other[i] != "" }) {
				line += cmp.Or(text, "-") + "\t"
			}
		}
		fmt.Fprintln(w, strings.TrimSuffix(line, "\t"))
	}
}

// cells are the keys and texts of a struct's fields. It is flat if these have no parts, lists of words aside.
func cells(v reflect.Value) (keys, texts []string, flat bool) {
	for _, f := range fieldsOf(v) {
		text, is := scalar(f.of)
		if !is && f.of.Kind() != reflect.Slice {
			return nil, nil, false
		}
		if !is {
			words, are := words(f.of)
			if !are {
				return nil, nil, false
			}
			text = strings.Join(words, ",")
		}
		if text == "" && !f.left {
			text = "-"
		}
		keys, texts = append(keys, f.key), append(texts, text)
	}
	return keys, texts, true
}

// words are the texts of the elements of a list, unless one has parts.
func words(v reflect.Value) (texts []string, are bool) {
	for i := range v.Len() {
		text, is := scalar(held(v.Index(i)))
		if !is {
			return nil, false
		}
		texts = append(texts, text)
	}
	return texts, true
}

// Word is the text of a value that has no parts, and a line where there is none.
func Word(value any) string {
	text, _ := scalar(held(reflect.ValueOf(value)))
	return cmp.Or(text, "-")
}

// held returns the value behind pointers and interfaces, which may be none.
func held(v reflect.Value) reflect.Value {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	return v
}

// scalar is the text of a value that has no parts.
func scalar(v reflect.Value) (text string, is bool) {
	if !v.IsValid() || !v.CanInterface() { // an embedded struct without a public name has parts
		return "", !v.IsValid()
	}
	switch own := v.Interface().(type) { // as JSON has it, or a number with a name
	case encoding.TextMarshaler:
		b, err := own.MarshalText()
		return string(b), err == nil
	case fmt.Stringer:
		if v.Kind() != reflect.Struct {
			return own.String(), true
		}
	}
	switch v.Kind() {
	case reflect.Struct, reflect.Map, reflect.Slice, reflect.Array:
		return "", false
	case reflect.Float64:
		digits := 1e3
		if math.Abs(v.Float()) < 0.1 {
			digits = 1e5
		}
		return strconv.FormatFloat(math.Round(v.Float()*digits)/digits, 'f', -1, 64), true
	}
	return fmt.Sprint(v), true
}
