// Package table prints reports, structs with json tags, for people: a line for each, under the keys that their JSON has.
package table

import (
	"fmt"
	"io"
	"reflect"
	"strings"
	"text/tabwriter"

	"github.com/trapeze-nic/trapeze/lab/internal/profile"
)

// Write prints a line for each of some reports. The keys below a field stand behind its own and a dot.
func Write[T any](w io.Writer, reports []T) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	line := func(cells []string) { fmt.Fprintln(t, strings.Join(cells, "\t")+"\t") }
	line(appendCells(nil, "", reflect.ValueOf(new(T)).Elem(), func(key string, _ any) string { return key }))
	for i := range reports {
		line(appendCells(nil, "", reflect.ValueOf(&reports[i]).Elem(), func(_ string, v any) string { return text(v) }))
	}
	return t.Flush()
}

// appendCells appends what cell makes of each field below some keys.
func appendCells(cells []string, under string, v reflect.Value, cell func(key string, v any) string) []string {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous:
			cells = appendCells(cells, under, v.Field(i), cell)
		case !f.IsExported() || key == "-":
		case f.Type.Kind() == reflect.Struct:
			cells = appendCells(cells, under+key+".", v.Field(i), cell)
		default:
			cells = append(cells, cell(under+key, v.Field(i).Interface()))
		}
	}
	return cells
}

// text writes a value, or a line where there is none.
func text(v any) string {
	switch v := v.(type) {
	case *bool:
		if v == nil {
			return "-"
		}
		return fmt.Sprint(*v)
	case profile.Time:
		return fmt.Sprintf("%.3f", v.Microseconds())
	case float64:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprint(v)
}
