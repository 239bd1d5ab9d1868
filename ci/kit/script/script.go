// Package script runs tests that are text: files of cases, each a list of commands and what they print.
// It stands on datadriven, whose flag -rewrite makes what is printed what is expected.
//
// A case is
//
//	case NAME key=(value,value) number=(1..9)...
//	command word...
//	| one way: command; command
//	| another: command
//	repeat i 3 { command $i; command }
//	----
//	what the commands print
//
// The values stand in the commands as $key. A case runs once for each combination of values and of
// ways. Lines with | that follow each other are ways. Where all print the same, that stands there once.
package script

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// End is the command that each case ends with, without being written there.
const End = "end"

// Run runs the cases of all files *.txt in folder, each combination of a case in a test of its own.
// begin returns what carries out the commands of one: do gets the words of a command, the first of
// which is its name, and returns the lines that it prints. It fails the test on a command that it
// does not understand.
func Run(t *testing.T, folder string, begin func(t *testing.T) (do func(words []string) string)) {
	files, err := filepath.Glob(filepath.Join(folder, "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts in %s: %v", folder, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
				if d.Cmd != "case" || len(d.CmdArgs) == 0 || len(d.CmdArgs[0].Vals) != 0 {
					t.Fatalf("%s: a case begins with: case NAME", d.Pos)
				}
				return runCase(t, d, begin)
			})
		})
	}
}

// variable is a name that stands for one of some values.
type variable struct {
	name   string
	values []string
}

// ways has the commands of each way of a block, by the way's name.
type ways map[string]string

func runCase(t *testing.T, d *datadriven.TestData, begin func(t *testing.T) func(words []string) string) string {
	var variables []variable
	for _, a := range d.CmdArgs[1:] {
		if len(a.Vals) == 0 {
			t.Fatalf("%s: %s has no values", d.Pos, a.Key)
		}
		variables = append(variables, variable{a.Key, expand(a.Vals)})
	}
	lines, blocks, err := parse(d.Input, &variables)
	if err != nil {
		t.Fatalf("%s: %v", d.Pos, err)
	}
	var outcomes []outcome
	all := true
	each(variables, nil, func(chosen []string) {
		name := d.CmdArgs[0].Key
		for i, v := range chosen {
			if len(variables[i].values) > 1 {
				name += "/" + v
			}
		}
		var out string
		ran := false
		t.Run(name, func(t *testing.T) {
			ran = true
			r := run{t: t, pos: d.Pos, do: begin(t)}
			for _, line := range lines {
				if ways, block := blocks[line]; block {
					line = ways[chosen[slices.IndexFunc(variables, func(v variable) bool { return v.name == line })]]
				}
				r.line(substitute(line, variables, chosen))
			}
			r.line(End)
			out = r.out.String()
		})
		outcomes = add(outcomes, out, chosen)
		all = all && ran
	})
	if !all { // -run chooses others
		return d.Expected
	}
	return describe(outcomes, variables)
}

// expand writes ranges of numbers such as 0..9 out.
func expand(values []string) (all []string) {
	for _, v := range values {
		from, to, isRange := strings.Cut(v, "..")
		first, err := strconv.Atoi(from)
		last, err2 := strconv.Atoi(to)
		if !isRange || err != nil || err2 != nil {
			all = append(all, v)
			continue
		}
		for n := first; n <= last; n++ {
			all = append(all, strconv.Itoa(n))
		}
	}
	return all
}

// parse returns the lines of a case. A block of ways is one line, which is the name of a variable.
func parse(input string, variables *[]variable) (lines []string, blocks map[string]ways, err error) {
	blocks = map[string]ways{}
	block := ""
	input = strings.ReplaceAll(input, "\\\n", " ")
	for line := range strings.Lines(input) {
		line = strings.TrimSpace(line)
		rest, way := strings.CutPrefix(line, "|")
		if !way {
			block = ""
			if line != "" && !strings.HasPrefix(line, "#") {
				lines = append(lines, line)
			}
			continue
		}
		name, commands, named := strings.Cut(rest, ":")
		if name = strings.TrimSpace(name); !named {
			return nil, nil, fmt.Errorf("%q is not | NAME: COMMANDS", line)
		}
		if block == "" {
			block = "|" + strconv.Itoa(len(blocks))
			blocks[block] = ways{}
			lines = append(lines, block)
			*variables = append(*variables, variable{name: block})
		}
		if _, twice := blocks[block][name]; twice {
			return nil, nil, fmt.Errorf("two ways are named %q", name)
		}
		blocks[block][name] = commands
		v := &(*variables)[len(*variables)-1]
		v.values = append(v.values, name)
	}
	return lines, blocks, nil
}

// each calls f with each combination of values.
func each(variables []variable, chosen []string, f func(chosen []string)) {
	if len(chosen) == len(variables) {
		f(slices.Clone(chosen))
		return
	}
	for _, v := range variables[len(chosen)].values {
		each(variables, append(chosen, v), f)
	}
}

// substitute puts values in the place of names. Of names that begin alike the longest counts.
func substitute(line string, variables []variable, chosen []string) string {
	if !strings.Contains(line, "$") {
		return line
	}
	order := make([]int, len(variables))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return len(variables[b].name) - len(variables[a].name) })
	var pairs []string
	for _, i := range order {
		pairs = append(pairs, "$"+variables[i].name, chosen[i])
	}
	return strings.NewReplacer(pairs...).Replace(line)
}

// run is one run of a case.
type run struct {
	t   *testing.T
	pos string
	do  func(words []string) string
	out strings.Builder
}

// line carries out the commands of a line.
func (r *run) line(line string) {
	for _, command := range split(line) {
		if head, body, repeats := strings.Cut(command, "{"); repeats && strings.HasPrefix(head, "repeat ") {
			r.repeat(strings.Fields(head)[1:], strings.TrimSuffix(strings.TrimSpace(body), "}"))
		} else if words := strings.Fields(command); len(words) > 0 {
			r.out.WriteString(r.command(words))
		}
	}
}

// split splits a line where a semicolon stands outside of braces.
func split(line string) (commands []string) {
	depth, from := 0, 0
	for i, c := range line {
		switch c {
		case '{':
			depth++
		case '}':
			depth--
		case ';':
			if depth == 0 {
				commands, from = append(commands, strings.TrimSpace(line[from:i])), i+1
			}
		}
	}
	return append(commands, strings.TrimSpace(line[from:]))
}

func (r *run) command(words []string) (out string) {
	ended := false
	defer func() {
		if r.t.Failed() || !ended {
			r.t.Logf("%s: in the case that begins here, after\n%sfailed: %s", r.pos, r.out.String(), strings.Join(words, " "))
		}
	}()
	if out = r.do(words); out != "" && !strings.HasSuffix(out, "\n") {
		out += "\n"
	}
	ended = true
	return out
}

// repeat carries out a body for each number. What prints the same as before is counted.
func (r *run) repeat(head []string, body string) {
	if len(head) != 2 {
		r.t.Fatalf("%s: it is: repeat NAME COUNT { COMMANDS }", r.pos)
	}
	count, err := strconv.Atoi(head[1])
	if err != nil || count < 1 {
		r.t.Fatalf("%s: %q is no count", r.pos, head[1])
	}
	all := r.out.String()
	last, times := "", 0
	flush := func() {
		if all += last; times > 1 && last != "" {
			all += fmt.Sprintf("  %d times\n", times)
		}
	}
	for i := range count {
		r.out.Reset()
		r.line(strings.ReplaceAll(body, "$"+head[0], strconv.Itoa(i)))
		if r.out.String() == last {
			times++
			continue
		}
		flush()
		last, times = r.out.String(), 1
	}
	flush()
	r.out.Reset()
	r.out.WriteString(all)
}
