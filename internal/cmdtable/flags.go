package cmdtable

import (
	"reflect"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/trapeze-nic/trapeze/internal/option"
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

// Global registers flags of a command and all those below it: the tagged fields of a struct.
func Global(c *cobra.Command, flags any) {
	r := &registration{command: c, set: c.PersistentFlags(), words: strings.NewReplacer()}
	r.flags(reflect.ValueOf(flags).Elem())
}

// registration registers the fields of structs as flags of a command. Beside the tags of option.Field, a field has these:
//
//	flag:"NAME,SHORTHAND"   the shorthand may be left out
//	help:"…"                what help says of the flag
//	hidden:"true"           help does not show it
//	override:"NAME"         of a struct: its help and default replace those of one flag in it
//
// The text of required says what the flag must be given with. {NAME} in help, required and default stands for a word of the table.
type registration struct {
	command   *cobra.Command
	set       *pflag.FlagSet
	words     *strings.Replacer
	overrides map[string]reflect.StructTag
	exclusive [][2]string
	required  []*option.Error
}

// flags registers what v, a struct, has, and what the structs in it have. Fields are exported, also
// those of embedded structs.
func (r *registration) flags(v reflect.Value) {
	for i := range v.NumField() {
		field, of := v.Type().Field(i), v.Field(i)
		name, tagged := field.Tag.Lookup("flag")
		switch {
		case field.Type == reflect.TypeFor[Given]():
			of.Set(reflect.ValueOf(Given(r.set.Changed)))
		case tagged:
			name, shorthand, _ := strings.Cut(name, ",")
			r.flag(shorthand, option.Field{Name: name, Tag: field.Tag, To: of})
		case of.Kind() == reflect.Struct:
			if name, ok := field.Tag.Lookup("override"); ok {
				r.overrides[name] = field.Tag
			}
			r.flags(of)
		}
	}
}

// flag registers one flag, whose value goes to a field.
func (r *registration) flag(shorthand string, field option.Field) {
	get := func(key string) string {
		text, ok := r.overrides[field.Name].Lookup(key)
		if !ok {
			text = field.Tag.Get(key)
		}
		return r.words.Replace(text)
	}
	initial := get("default")
	if initial != "" {
		if err := field.Set(initial); err != nil {
			mistake("--%s: default %q: %v", field.Name, initial, err)
		}
		if field.To.Kind() == reflect.Slice {
			initial = "[" + initial + "]"
		}
	}
	f := r.set.VarPF(&value{Field: field}, field.Name, shorthand, get("help"))
	f.DefValue, f.Hidden = initial, get("hidden") == "true"
	if field.To.Kind() == reflect.Bool {
		f.NoOptDefVal = "true"
	}
	if words := get("oneof"); words != "" {
		complete := cobra.FixedCompletions(strings.Split(words, ","), cobra.ShellCompDirectiveNoFileComp)
		if field.To.Kind() == reflect.Slice {
			complete = EachOf(complete)
		}
		cobra.CheckErr(r.command.RegisterFlagCompletionFunc(field.Name, complete))
	}
	if allowed := get("required"); allowed != "" {
		r.required = append(r.required, &option.Error{Option: "--" + field.Name, Allowed: allowed})
	}
	for other := range strings.SplitSeq(get("excludes"), ",") {
		if other != "" {
			r.exclusive = append(r.exclusive, [2]string{field.Name, other})
		}
	}
}

// EachOf completes the last word of a list with commas, as one completes each.
func EachOf(one cobra.CompletionFunc) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		before := prefix[:strings.LastIndexByte(prefix, ',')+1]
		words, directive := one(c, args, prefix[len(before):])
		list := make([]cobra.Completion, len(words))
		for i, w := range words {
			list[i] = before + w
		}
		if before != "" {
			directive = cobra.ShellCompDirectiveNoFileComp // the shell knows files, but not behind a comma
		}
		return list, directive | cobra.ShellCompDirectiveNoSpace
	}
}

// missing returns an error about a required flag that was not given.
func (r *registration) missing() error {
	for _, e := range r.required {
		if !r.set.Changed(strings.TrimPrefix(e.Option, "--")) {
			return e
		}
	}
	return nil
}

// value is the value of a flag: a field of a struct.
type value struct {
	option.Field
	given []string // of a list, whose default they replace
}

// Type is the value's name in help.
func (v *value) Type() string {
	switch t := v.To.Type(); {
	case t == reflect.TypeFor[time.Duration](), t == reflect.TypeFor[option.Bytes]():
		return strings.ToLower(t.Name())
	case t.Kind() == reflect.Slice:
		return t.Elem().Kind().String() + "Slice"
	default:
		return t.Kind().String()
	}
}

// String is the value as the user gave it; the default is elsewhere.
func (v *value) String() string { return strings.Join(v.given, ",") }

// Set reads what the user gives.
func (v *value) Set(s string) error {
	if s == "" { // as of a script whose variable is not set
		return option.Errorf("it must not be empty")
	}
	v.given = append(v.given, s)
	if v.To.Kind() != reflect.Slice {
		v.given = []string{s}
	}
	if err := v.Field.Set(v.given...); err != nil {
		return option.Mark(err)
	}
	return nil
}
