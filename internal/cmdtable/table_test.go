package cmdtable_test

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/internal/cmdtable"
	"github.com/trapeze-nic/trapeze/internal/option"
)

const text = `== cells
Count cells

Count {what}.

{about}

== cells cut FILE [SIZE]...
Cut a file

Cut a file into cells.

{keys}

Examples:
  cells cut a.bin
  cells cut a.bin 48

== {about}
A cell has 48 bytes.
`

type path string

type shared struct {
	Rate    option.Bytes  `flag:"rate" default:"1K" help:"bytes a second"`
	Timeout time.Duration `flag:"timeout" default:"{timeout}" help:"give up after {timeout}"`
}

type cutFlags struct {
	shared `override:"rate" default:"2K" help:"bytes a second of cells"`
	Count  uint64    `flag:"count,c" excludes:"all" help:"how many"`
	All    bool      `flag:"all" help:"all of them"`
	Names  []string  `flag:"name" default:"x" help:"again for another"`
	Words  []string  `flag:"word" split:"comma"`
	Kinds  []string  `flag:"kind" split:"comma" default:"high,low"`
	Sizes  []int     `flag:"size" default:"48,64"`
	Shares []float64 `flag:"share" default:"0.5"`
	Slow   float64   `flag:"slow" default:"1.5"`
	Path   path      `flag:"path" default:"/" hidden:"true"`
	Given  cmdtable.Given
	More   cmdtable.Force
	plain  int
}

type cutReport struct {
	Cells int `json:"cells" help:"of 48 bytes"`
}

// cells makes the commands of text; ran gets what cut is run with.
func cells(ran *cutFlags, words *[]string) *cobra.Command {
	cut := func(_ context.Context, f *cutFlags, args []string) error {
		*ran, *words = *f, args
		return nil
	}
	t := cmdtable.New(text, map[string]string{"what": "cells", "timeout": "10s"})
	c := t.Family("cells", cmdtable.Does("cells cut", cut, cutReport{}))
	c.SetOut(io.Discard)
	c.SetErr(io.Discard)
	return c
}

// TestTable: a command has its help, the keys of its report, and its flags with what was given.
func TestTable(t *testing.T) {
	var ran cutFlags
	var args []string
	root := cells(&ran, &args)
	if root.Long != "Count cells.\n\nA cell has 48 bytes." || root.Short != "Count cells" || root.Use != "cells" || root.Example != "" {
		t.Errorf("%q, %q, %q, %q", root.Use, root.Short, root.Long, root.Example)
	}
	cut := root.Commands()[0]
	if cut.Use != "cut FILE [SIZE]..." || cut.Long != "Cut a file into cells.\n\nJSON keys: cells (of 48 bytes)." || cut.Example != "  cells cut a.bin\n  cells cut a.bin 48" {
		t.Errorf("%q, %q, %q", cut.Use, cut.Long, cut.Example)
	}
	for name, want := range map[string][3]string{
		"rate": {"2K", "bytes a second of cells", ""}, "timeout": {"10s", "give up after 10s", ""}, "count": {"", "how many", "c"},
		"all": {"", "all of them", ""}, "name": {"[x]", "again for another", ""}, "word": {"", "", ""}, "kind": {"[high,low]", "", ""}, "size": {"[48,64]", "", ""}, "share": {"[0.5]", "", ""}, "slow": {"1.5", "", ""}, "path": {"/", "", ""}, "force": {"", "replace a file that exists", ""},
	} {
		f := cut.Flag(name)
		if f == nil || [3]string{f.DefValue, f.Usage, f.Shorthand} != want || f.Hidden != (name == "path") {
			t.Errorf("%s: %+v, want %q", name, f, want)
		}
	}
	root.SetArgs([]string{"cut", "a", "48", "-c", "3", "--name", "y", "--name", "z", "--word", "a,b", "--size", "1,2", "--share", "0.25", "--path", "/tmp", "--force"})
	must.OK(t, root.Execute())
	if ran.Count != 3 || ran.Rate != 2048 || ran.Timeout != 10*time.Second || ran.Path != "/tmp" || !ran.More.Force || ran.plain != 0 ||
		!slices.Equal(ran.Kinds, []string{"high", "low"}) || !slices.Equal(ran.Sizes, []int{1, 2}) || !slices.Equal(ran.Shares, []float64{0.25}) || ran.Slow != 1.5 ||
		!slices.Equal(ran.Names, []string{"y", "z"}) || !slices.Equal(ran.Words, []string{"a", "b"}) || !slices.Equal(args, []string{"a", "48"}) {
		t.Errorf("%+v, %q", ran, args)
	}
	if !ran.Given("count") || ran.Given("rate") {
		t.Error("what was given is not known")
	}
}

// TestTableRefuses: arguments that are too few, and flags that exclude each other.
func TestTableRefuses(t *testing.T) {
	for _, args := range [][]string{{"cut"}, {"cut", "a", "--count", "1", "--all"}, {"cut", "a", "--rate", "x"}} {
		var ran cutFlags
		var words []string
		root := cells(&ran, &words)
		root.SetArgs(args)
		if err := root.Execute(); err == nil || words != nil {
			t.Errorf("%q: %v", args, err)
		}
	}
}

// TestTableNumbersOfArguments follow from the line that says how a command is used.
func TestTableNumbersOfArguments(t *testing.T) {
	for use, allowed := range map[string][]bool{
		"cells --device ADDRESS":         {true, false, false, false},
		"cells --device ADDRESS FILE":    {false, true, false, false},
		"cells [PID|ADDRESS]":            {true, true, false, false},
		"cells A B [C]...":               {false, false, true, true},
		"cells --device A --device A...": {true, false, false, false},
	} {
		c := cmdtable.New("== "+use+"\nCount\n\nCount.\n", nil).Command(cmdtable.Does("cells", func(context.Context, *cmdtable.NoFlags, []string) error { return nil }, nil))
		for n, want := range allowed {
			if err := c.Args(c, []string{"a", "b", "c"}[:n]); (err == nil) != want {
				t.Errorf("%s: %d arguments: %v", use, n, err)
			}
		}
	}
}

// TestTableOfNoUse: a mistake in the program is found when its commands are made.
func TestTableOfNoUse(t *testing.T) {
	nothing := func(context.Context, *cmdtable.NoFlags, []string) error { return nil }
	for says, make := range map[string]func(){
		"no help for cells":    func() { cmdtable.New("", nil).Command(cmdtable.Does("cells", nothing, nil)) },
		"unknown word: {what}": func() { cmdtable.New(text, nil).Family("cells") },
		"unknown word: {keys}": func() { cmdtable.New("== x\nX\n\n{keys}\n", nil).Command(cmdtable.Does("x", nothing, nil)) },
		"--n: default": func() {
			cmdtable.New("== x\nX\n\nX.\n", nil).Command(cmdtable.Does("x", func(context.Context, *struct {
				N int `flag:"n" default:"x"`
			}, []string) error {
				return nil
			}, nil))
		},
	} {
		func() {
			defer func() {
				if got, _ := recover().(string); !strings.Contains(got, says) {
					t.Errorf("%q, want %q", got, says)
				}
			}()
			make()
		}()
	}
}
