// Package cmdtable makes families of commands from tables: a text has their help, rows have what they
// do, and tags of structs have their flags.
package cmdtable

import (
	"context"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/internal/option"
)

// Row is a command of a table: what it is called, prints and does.
type Row struct {
	name   string
	report any
	flags  any
	run    func(context.Context, []string) error
}

// Does makes the row of a command whose flags are the tagged fields of F, see registration. report is
// a value of what it prints with --json, nil if the help says that itself.
func Does[F any](name string, run func(ctx context.Context, f *F, args []string) error, report any) Row {
	f := new(F)
	return Row{name, report, f, func(ctx context.Context, args []string) error { return run(ctx, f, args) }}
}

// Table makes commands of rows, and of a text that has their help.
type Table struct {
	help  map[string]help
	words *strings.Replacer
}

type help struct{ use, short, long, example string }

var (
	// path matches the words by which a command is called in the line that says how it is used.
	path     = regexp.MustCompile(`^[a-z]+(-[a-z]+)*( [a-z]+(-[a-z]+)*)*`)
	required = regexp.MustCompile(`--\S+ \S+ ?`)
	braces   = regexp.MustCompile(`\{[a-z][a-zA-Z-]*\}`)
)

// New reads the help of commands. A line "== frames dump --device ADDRESS" begins that of a
// command. Its summary follows, an empty line, its description, and behind a line "Examples:" its
// examples. In descriptions {NAME} stands for a word of words, or for the text behind a line "== {NAME}".
// {keys} stands for the JSON keys of the command's report. New and the table's methods panic if the text
// is not so: it is part of the program.
func New(text string, words map[string]string) *Table {
	t := &Table{help: map[string]help{}}
	var pairs []string
	for name, word := range words {
		pairs = append(pairs, "{"+name+"}", word)
	}
	for _, section := range strings.Split("\n"+text, "\n== ")[1:] {
		use, body, _ := strings.Cut(strings.TrimRight(section, "\n"), "\n")
		if braces.MatchString(use) {
			pairs = append(pairs, use, body)
			continue
		}
		body, example, _ := strings.Cut(body, "\n\nExamples:\n")
		short, long, _ := strings.Cut(body, "\n\n")
		t.help[path.FindString(use)] = help{use, short, long, example}
	}
	t.words = strings.NewReplacer(pairs...)
	return t
}

// Command makes the command of a row, whose name has the words before it.
func (t *Table) Command(row Row) *cobra.Command {
	c := t.bare(row.name, row.report)
	c.Args = arguments(c.Use)
	r := &registration{command: c, set: c.Flags(), words: t.words, overrides: map[string]reflect.StructTag{}}
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := r.missing(); err != nil {
			return err
		}
		return row.run(c.Context(), args)
	}
	r.flags(reflect.ValueOf(row.flags).Elem())
	for _, pair := range r.exclusive {
		c.MarkFlagsMutuallyExclusive(pair[:]...)
	}
	return c
}

// Commands makes a command of each row.
func (t *Table) Commands(rows ...Row) (list []*cobra.Command) {
	for _, row := range rows {
		list = append(list, t.Command(row))
	}
	return list
}

// Family makes a command that only shows its help, with the rows' commands below it.
func (t *Table) Family(name string, rows ...Row) *cobra.Command {
	c := t.bare(name, nil)
	c.Args = arguments(c.Use)
	c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	c.AddCommand(t.Commands(rows...)...)
	return c
}

// bare is a command that has its help and nothing else.
func (t *Table) bare(name string, report any) *cobra.Command {
	h, ok := t.help[name]
	if !ok {
		mistake("no help for %s", name)
	}
	long := t.words.Replace(h.long)
	if report != nil {
		in := ""
		if reflect.TypeOf(report).Kind() == reflect.Slice {
			in = ", in an array"
		}
		long = strings.ReplaceAll(long, "{keys}", "JSON keys"+in+": "+Keys(report)+".")
	}
	if word := braces.FindString(long); word != "" {
		mistake("the help of %s has an unknown word: %s", name, word)
	}
	return &cobra.Command{Use: h.use[strings.LastIndex(name, " ")+1:], Short: h.short, Long: fill(long), Example: h.example}
}

// fill fills the lines of paragraphs up to the width of a terminal. Those with indented lines, as of a table, stay.
func fill(text string) string {
	const columns = 80
	paragraphs := strings.Split(text, "\n\n")
	for i, p := range paragraphs {
		if strings.Contains("\n"+p, "\n ") || strings.Contains("\n"+p, "\n- ") {
			continue
		}
		lines, line := []string(nil), ""
		for word := range strings.FieldsSeq(p) {
			if line != "" && len(line)+1+len(word) > columns {
				lines, line = append(lines, line), ""
			}
			line = strings.TrimPrefix(line+" "+word, " ")
		}
		paragraphs[i] = strings.Join(append(lines, line), "\n")
	}
	return strings.Join(paragraphs, "\n\n")
}

// arguments checks the arguments by a line such as "fw map IMAGE NAME [OPERATION]...".
func arguments(use string) cobra.PositionalArgs {
	_, names, _ := strings.Cut(use, " ")
	names = required.ReplaceAllString(names, "")
	least, most := 0, 0
	for _, name := range strings.Fields(names) {
		if name[0] != '[' {
			least++
		}
		if most++; strings.HasSuffix(name, "...") {
			most = 1 << 20
		}
	}
	if names == "" {
		names = "no arguments"
	}
	return func(c *cobra.Command, args []string) error {
		var below []string
		for _, sub := range c.Commands() {
			below = append(below, sub.Name())
		}
		switch {
		case len(args) >= least && len(args) <= most && !slices.Contains(args, ""):
			return nil
		case below != nil:
			return option.Errorf("unknown command %q for %q: use %s", args[0], c.CommandPath(), strings.Join(below, ", "))
		}
		return option.Errorf("%s takes %s, and was given %q", c.CommandPath(), names, args)
	}
}

// mistake ends a program whose text or tags are not as they must be: no input makes them so.
func mistake(format string, a ...any) { panic(fmt.Sprintf(format, a...)) }
