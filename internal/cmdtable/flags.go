package cmdtable

import (
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Given reports whether the user gave a flag, by its name. A field of this type in a struct of
// flags is set when the flags are registered.
type Given func(flag string) bool

// NoFlags are the flags of a command that has none.
type NoFlags struct{}

// Force is the flag --force, with which a command replaces the files that it is to write. Every
// command that writes files has it, and refuses one that exists without it.
type Force struct {
	Force bool `flag:"force" help:"replace a file that exists"`
}

// registration registers the fields of structs as flags of a command. These are the tags of a field:
//
//	flag:"NAME,SHORTHAND"   the shorthand may be left out
//	help:"…"                what help says of the flag
//	default:"…"             as the user would give it; else the type's zero
//	excludes:"NAME,NAME"    flags that cannot be given together with it
//	split:"comma"           of []string: one flag gives several, as of []int; else it is given again
//	hidden:"true"           help does not show it
//	override:"NAME"         of a struct: its other tags replace those of one flag in it
//
// {NAME} in help and default stands for a word of the table.
type registration struct {
	command   *cobra.Command
	words     *strings.Replacer
	overrides map[string]reflect.StructTag
	exclusive [][2]string
}

// flags registers what v, a struct, has, and what the structs in it have. Fields are exported, also
// those of embedded structs.
func (r *registration) flags(v reflect.Value) {
	for i := range v.NumField() {
		field, of := v.Type().Field(i), v.Field(i)
		name, tagged := field.Tag.Lookup("flag")
		switch {
		case field.Type == reflect.TypeFor[Given]():
			of.Set(reflect.ValueOf(Given(r.command.Flags().Changed)))
		case tagged:
			name, shorthand, _ := strings.Cut(name, ",")
			to := of.Addr()
			if of.Kind() == reflect.String { // of a type with a name, too
				to = to.Convert(reflect.TypeFor[*string]())
			}
			r.flag(name, shorthand, field.Tag, to.Interface())
		case of.Kind() == reflect.Struct:
			if name, ok := field.Tag.Lookup("override"); ok {
				r.overrides[name] = field.Tag
			}
			r.flags(of)
		}
	}
}

// flag registers one flag, whose value goes to a pointer.
func (r *registration) flag(name, shorthand string, tag reflect.StructTag, to any) {
	get := func(key string) string {
		text, ok := r.overrides[name].Lookup(key)
		if !ok {
			text = tag.Get(key)
		}
		if !strings.Contains(text, "{") {
			return text
		}
		return r.words.Replace(text)
	}
	f, usage, initial := r.command.Flags(), get("help"), get("default")
	switch p := to.(type) {
	case *string:
		f.StringVarP(p, name, shorthand, "", usage)
	case *bool:
		f.BoolVarP(p, name, shorthand, false, usage)
	case *int:
		f.IntVarP(p, name, shorthand, 0, usage)
	case *int64:
		f.Int64VarP(p, name, shorthand, 0, usage)
	case *uint16:
		f.Uint16VarP(p, name, shorthand, 0, usage)
	case *uint64:
		f.Uint64VarP(p, name, shorthand, 0, usage)
	case *float64:
		f.Float64VarP(p, name, shorthand, 0, usage)
	case *[]int:
		f.IntSliceVarP(p, name, shorthand, numbers(initial, strconv.Atoi), usage)
		initial = ""
	case *[]float64:
		f.Float64SliceVarP(p, name, shorthand, numbers(initial, parseFloat), usage)
		initial = ""
	case *time.Duration:
		f.DurationVarP(p, name, shorthand, 0, usage)
	case *[]string:
		r.list(p, name, usage, initial, tag.Get("split") != "")
		initial = ""
	case pflag.Value:
		f.VarP(p, name, shorthand, usage)
	default:
		mistake("--%s: no flag is a %T", name, to)
	}
	flag := f.Lookup(name)
	if initial != "" {
		if err := flag.Value.Set(initial); err != nil {
			mistake("--%s: default %q: %v", name, initial, err)
		}
		flag.DefValue = flag.Value.String()
	}
	flag.Hidden = tag.Get("hidden") == "true"
	if others := tag.Get("excludes"); others != "" {
		for other := range strings.SplitSeq(others, ",") {
			r.exclusive = append(r.exclusive, [2]string{name, other})
		}
	}
}

// list registers a flag that has several values.
func (r *registration) list(p *[]string, name, usage, initial string, split bool) {
	var values []string
	if initial != "" && split {
		values = strings.Split(initial, ",")
	} else if initial != "" {
		values = []string{initial}
	}
	if split {
		r.command.Flags().StringSliceVar(p, name, values, usage)
	} else {
		r.command.Flags().StringArrayVar(p, name, values, usage)
	}
}

// numbers reads the default of a flag that has several numbers.
func numbers[T any](initial string, parse func(string) (T, error)) (values []T) {
	for word := range strings.SplitSeq(initial, ",") {
		v, err := parse(word)
		if err != nil {
			mistake("default %q: %v", initial, err)
		}
		values = append(values, v)
	}
	return values
}

func parseFloat(s string) (float64, error) { return strconv.ParseFloat(s, 64) }
