// Package shelltest has the checks that the commands of every program pass.
package shelltest

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
)

// Exit codes that the help of every program lists.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

// Program is a program to test.
type Program struct {
	Name string
	Run  func(t *testing.T, args ...string) Outcome
}

// Outcome has the results of a command.
type Outcome struct {
	Code           int
	Stdout, Stderr string
}

// Described is the help of a command in JSON.
type Described struct {
	path []string

	Command, Usage, Summary, Description, Examples string
	Flags                                          []Flag
	Commands                                       []struct{ Name, Summary string }
}

// Flag is one of a command.
type Flag struct{ Name, Type, Usage string }

// describe returns the help of a command.
func (p Program) describe(t *testing.T, path []string) (d Described) {
	t.Helper()
	o := p.Run(t, append(slices.Clone(path), "--help", "--json")...)
	err := json.Unmarshal([]byte(o.Stdout), &d)
	must.Hold(t, err == nil && o.Code == exitOK, "%v --help: %v, %+v", path, err, o)
	return d
}

// trees have the commands of programs that a test has asked for, by the program's name.
var trees = map[string][]Described{}

// Tree calls visit for every command but the hidden ones. The program is asked for them once.
func (p Program) Tree(t *testing.T, visit func(path []string, d Described)) {
	t.Helper()
	if trees[p.Name] == nil {
		var walk func(path []string)
		walk = func(path []string) {
			d := p.describe(t, path)
			d.path = path
			trees[p.Name] = append(trees[p.Name], d)
			for _, c := range d.Commands {
				walk(append(slices.Clone(path), c.Name))
			}
		}
		walk(nil)
	}
	for _, d := range trees[p.Name] {
		visit(d.path, d)
	}
}

// cobras are the commands of cobra, and the texts among the commands, which run nothing.
var cobras = []string{"help", "completion", "exit-codes"}

// TestEveryCommand checks that there are at least so many commands. Each must be documented and
// have help in JSON, and a mistake in its flags must lead to its own help.
func (p Program) TestEveryCommand(t *testing.T, least int) {
	p.Tree(t, func(path []string, d Described) { p.command(t, path, d) })
	n := len(trees[p.Name])
	should.Hold(t, n >= least, "there are %d commands only", n)
}

func (p Program) command(t *testing.T, path []string, d Described) {
	t.Helper()
	name := strings.Join(append([]string{p.Name}, path...), " ")
	should.Hold(t, d.Command == name && d.Summary != "" && strings.HasPrefix(d.Usage, name),
		"%s: its help is of %q, usage %q, summary %q", name, d.Command, d.Usage, d.Summary)
	byHelp, byFlag := p.Run(t, append([]string{"help", "--json"}, path...)...), p.Run(t, append(slices.Clone(path), "--json", "-h")...)
	should.Be(t, byHelp.Stdout, byFlag.Stdout, "help %s and --help", name)
	if len(path) > 0 && slices.Contains(cobras, path[0]) {
		return
	}
	should.Contain(t, d.Examples, p.Name, "%s: no example", name)
	should.Hold(t, len(d.Commands) > 0 || strings.Contains(d.Description, "\nJSON"), "%s: the description does not say what it prints with --json", name)
	for _, flag := range []string{"json", "progress", "pprof", "log-level", "log-format"} {
		should.Hold(t, slices.ContainsFunc(d.Flags, func(f Flag) bool { return f.Name == flag && f.Usage != "" }), "%s: no flag --%s", name, flag)
	}
	o := p.Run(t, append(slices.Clone(path), "--no-such-flag", "--json")...)
	var r struct {
		Error    string
		ExitCode int `json:"exit_code"`
	}
	err := json.Unmarshal([]byte(o.Stdout), &r)
	should.Hold(t, err == nil && o.Code == exitUsage && r.ExitCode == exitUsage &&
		strings.HasSuffix(r.Error, "unknown flag: --no-such-flag (see '"+name+" --help')"), "%s: a bad flag: %v, %+v", name, err, o)
	if len(d.Commands) > 0 {
		if o := p.Run(t, append(slices.Clone(path), "no-such-command")...); o.Code != exitUsage || !strings.Contains(o.Stderr, "(see '"+name+" --help')") {
			t.Errorf("%s: a bad command: %+v", name, o)
		}
	}
}

// TestExamples checks that every example of a help text names a command, and flags that it has.
// Examples that name another program are not looked at.
func (p Program) TestExamples(t *testing.T) {
	flags, examples := map[string][]string{}, map[string]string{}
	p.Tree(t, func(path []string, d Described) {
		var names []string
		for _, f := range d.Flags {
			names = append(names, f.Name)
		}
		flags[d.Command], examples[d.Command] = names, strings.ReplaceAll(d.Examples, "\\\n", " ")
	})
	call, flag := regexp.MustCompile(`\b`+p.Name+`( [^\n|&;>']+|'[^'\n]*')+`), regexp.MustCompile(` --([a-z-]+)`)
	for of, text := range examples {
		for _, c := range call.FindAllString(text, -1) {
			command := p.Name
			for _, word := range strings.Fields(c)[1:] {
				if flags[command+" "+word] == nil {
					break
				}
				command += " " + word
			}
			for _, f := range flag.FindAllStringSubmatch(c, -1) {
				should.Hold(t, slices.Contains(flags[command], f[1]), "%s: in the example %q there is --%s, which %s does not have", of, c, f[1], command)
			}
		}
	}
}

// TestJSON runs commands with --json, which must succeed: each prints one value in lines, whose
// keys are in the command's help.
func (p Program) TestJSON(t *testing.T, commands [][]string) {
	t.Helper()
	for _, args := range commands {
		p.TestFailingJSON(t, exitOK, args...)
	}
}

// TestFailingJSON is TestJSON for one command that ends with the given code.
func (p Program) TestFailingJSON(t *testing.T, code int, args ...string) {
	t.Helper()
	o := p.Run(t, append([]string{"--json"}, args...)...)
	should.Hold(t, o.Code == code && (code != exitOK || o.Stderr == ""), "%v: %+v", args, o)
	var v any
	if err := json.Unmarshal([]byte(o.Stdout), &v); err != nil {
		t.Errorf("%v: %v in %q", args, err, o.Stdout)
		return
	}
	var lines bytes.Buffer
	should.OK(t, json.Indent(&lines, []byte(o.Stdout), "", "  "))
	should.Hold(t, lines.String() == o.Stdout, "%v: not indented as others: %.100q", args, o.Stdout)
	d := p.describe(t, nil)
	var path []string
	for _, word := range args {
		if !slices.ContainsFunc(d.Commands, func(c struct{ Name, Summary string }) bool { return c.Name == word }) {
			break
		}
		path = append(path, word)
		d = p.describe(t, path)
	}
	for _, k := range undocumented(v, d.Description) {
		t.Errorf("%v: key %s is not in the help of %v", args, k, path)
	}
}

// undocumented lists the keys of a value that a text does not name. What stands below
// counters are names of counters.
func undocumented(v any, text string) (list []string) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			list = append(list, undocumented(e, text)...)
		}
	case map[string]any:
		for k, e := range v {
			if !regexp.MustCompile(`\b` + regexp.QuoteMeta(k) + `\b`).MatchString(text) {
				list = append(list, k)
			}
			if k != "counters" {
				list = append(list, undocumented(e, text)...)
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}
