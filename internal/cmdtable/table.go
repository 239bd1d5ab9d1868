// Package cmdtable makes families of commands from tables: a text has their help, rows have what they
// do, and tags of structs have their flags.
package cmdtable

import (
	"context"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/keys"
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
	words map[string]string
}

// help is the help of a command.
type help struct{ use, short, long, example string }

var (
	title = regexp.MustCompile(`(?m)^== (.*)\n`)
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
	t := &Table{help: map[string]help{}, words: map[string]string{}}
	for name, word := range words {
		t.words["{"+name+"}"] = word
	}
	lines := title.FindAllStringSubmatchIndex(text, -1)
	for i, at := range lines {
		end := len(text)
		if i+1 < len(lines) {
			end = lines[i+1][0]
		}
		use, body := text[at[2]:at[3]], strings.TrimRight(text[at[1]:end], "\n")
		if braces.MatchString(use) {
			t.words[use] = body
			continue
		}
		body, example, _ := strings.Cut(body, "\n\nExamples:\n")
		short, long, _ := strings.Cut(body, "\n\n")
		t.help[path.FindString(use)] = help{use, short, long, example}
	}
	return t
}

// Command makes the command of a row, whose name has the words before it.
func (t *Table) Command(row Row) *cobra.Command {
	c := t.bare(row.name, row.report)
	c.Args = arguments(c.Use)
	c.RunE = command.Run(row.run)
	r := &registration{command: c, words: t.replacer(nil), overrides: map[string]reflect.StructTag{}}
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
	c.Args = cobra.NoArgs
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
	long := t.replacer(report).Replace(h.long)
	if word := braces.FindString(long); word != "" {
		mistake("the help of %s has an unknown word: %s", name, word)
	}
	return &cobra.Command{Use: h.use[strings.LastIndex(name, " ")+1:], Short: h.short, Long: long, Example: h.example}
}

// replacer puts words in the place of their names.
func (t *Table) replacer(report any) *strings.Replacer {
	var pairs []string
	if of := reflect.TypeOf(report); of != nil && of.Kind() == reflect.Slice {
		pairs = append(pairs, "{keys}", keys.Array(reflect.Zero(of.Elem()).Interface()))
	} else if of != nil {
		pairs = append(pairs, "{keys}", keys.Of(report))
	}
	for name, text := range t.words {
		pairs = append(pairs, name, text)
	}
	return strings.NewReplacer(pairs...)
}

// arguments checks the number of arguments that a line such as "fw map IMAGE NAME [OPERATION]..." has.
func arguments(use string) cobra.PositionalArgs {
	_, names, _ := strings.Cut(use, " ")
	least, most := 0, 0
	for _, name := range strings.Fields(required.ReplaceAllString(names, "")) {
		if name[0] != '[' {
			least++
		}
		if most++; strings.HasSuffix(name, "...") {
			return cobra.MinimumNArgs(least)
		}
	}
	if most == 0 {
		return cobra.NoArgs
	}
	return cobra.RangeArgs(least, most)
}

// mistake ends a program whose text or tags are not as they must be: no input makes them so.
func mistake(format string, a ...any) { panic(fmt.Sprintf(format, a...)) }
