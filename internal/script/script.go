// Package script reads tests that are text: files of cases, each a list of commands and what they print.
// Package scripttest of ci/kit runs them in go test.
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
// up to an empty line. The values stand in the commands as $key. A case runs once for each combination of
// values and of ways. Lines with | that follow each other are ways. Where all print the same, that stands
// there once. A line outside of a case that begins with # is a comment.
package script

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// End is the command that each case ends with, without being written there.
const End = "end"

// Case is a case of a script.
type Case struct {
	Name string
	Line int // of its file, counted from 1
	// Want is the text that its commands are to print, from From up to To of its file.
	Want     string
	From, To int

	variables []variable
	lines     []string
	blocks    map[string]ways
}

// variable is a name that stands for one of some values.
type variable struct {
	name   string
	values []string
}

// ways has the commands of each way of a block, by the way's name.
type ways map[string]string

// Play carries out the commands of a combination. do gets the words of a command, the first of which is
// its name, and returns the lines that it prints.
type Play func(do func(words []string) string) (out string)

const between = "----\n"

// Read returns the cases of a file.
func Read(text string) (cases []Case, err error) {
	var c *Case
	var input strings.Builder
	at := 0
	for i, line := range strings.SplitAfter(text, "\n") {
		at += len(line)
		switch bare := strings.TrimSpace(line); {
		case c == nil && (bare == "" || strings.HasPrefix(bare, "#")):
		case c == nil:
			if c, err = begin(bare); err != nil {
				return nil, fmt.Errorf("line %d: %w", i+1, err)
			}
			c.Line = i + 1
			input.Reset()
		case line == between && c.From == 0:
			c.From, c.To = at, at
			if err := c.parse(input.String()); err != nil {
				return nil, fmt.Errorf("the case of line %d: %w", c.Line, err)
			}
		case c.From == 0:
			input.WriteString(line)
		case bare != "":
			c.To = at
		default:
			c.Want = text[c.From:c.To]
			cases, c = append(cases, *c), nil
		}
	}
	if c != nil {
		return nil, fmt.Errorf("the case of line %d has no end", c.Line)
	}
	return cases, nil
}

var values = regexp.MustCompile(`\s+([^\s=]+)=\(([^)]*)\)`)

// begin reads the first line of a case.
func begin(line string) (*Case, error) {
	rest, is := strings.CutPrefix(line, "case ")
	name, rest, _ := strings.Cut(rest, " ")
	c := &Case{Name: name}
	rest = " " + rest
	for _, m := range values.FindAllStringSubmatch(rest, -1) {
		c.variables = append(c.variables, variable{m[1], Span(m[2])})
	}
	if !is || name == "" || strings.TrimSpace(values.ReplaceAllString(rest, "")) != "" {
		return nil, fmt.Errorf("%q is not: case NAME, with KEY=(VALUE,VALUE) for each of its variables", line)
	}
	return c, nil
}

// Run makes each combination of values and ways run, and returns what those that have run print together, and
// whether all have. run gets the combination's name and its commands; it may leave it out.
func (c *Case) Run(run func(name string, play Play) (out string, ran bool)) (out string, all bool) {
	var outcomes []outcome
	all = true
	each(c.variables, nil, func(chosen []string) {
		name := c.Name
		for i, v := range chosen {
			if len(c.variables[i].values) > 1 {
				name += "/" + v
			}
		}
		out, ran := run(name, func(do func(words []string) string) string {
			p := player{do: do}
			for _, line := range c.lines {
				if ways, block := c.blocks[line]; block {
					line = ways[chosen[slices.IndexFunc(c.variables, func(v variable) bool { return v.name == line })]]
				}
				p.line(substitute(line, c.variables, chosen))
			}
			p.line(End)
			return p.out.String()
		})
		if all = all && ran; ran {
			outcomes = add(outcomes, out, chosen)
		}
	})
	return describe(outcomes, c.variables), all
}

// parse reads the lines of a case. A block of ways is one line, which is the name of a variable.
func (c *Case) parse(input string) error {
	c.blocks = map[string]ways{}
	block := ""
	input = strings.ReplaceAll(input, "\\\n", " ")
	for line := range strings.Lines(input) {
		line = strings.TrimSpace(line)
		rest, way := strings.CutPrefix(line, "|")
		if !way {
			block = ""
			if line != "" && !strings.HasPrefix(line, "#") {
				c.lines = append(c.lines, line)
			}
			continue
		}
		name, commands, named := strings.Cut(rest, ":")
		if name = strings.TrimSpace(name); !named {
			return fmt.Errorf("%q is not | NAME: COMMANDS", line)
		}
		if block == "" {
			block = "|" + strconv.Itoa(len(c.blocks))
			c.blocks[block] = ways{}
			c.lines = append(c.lines, block)
			c.variables = append(c.variables, variable{name: block})
		}
		if _, twice := c.blocks[block][name]; twice {
			return fmt.Errorf("two ways are named %q", name)
		}
		c.blocks[block][name] = commands
		v := &c.variables[len(c.variables)-1]
		v.values = append(v.values, name)
	}
	return nil
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

// player carries out commands.
type player struct {
	do  func(words []string) string
	out strings.Builder
}

// line carries out the commands of a line.
func (p *player) line(line string) {
	for _, command := range split(line) {
		if head, body, repeats := strings.Cut(command, "{"); repeats && strings.HasPrefix(head, "repeat ") {
			p.repeat(strings.Fields(head)[1:], strings.TrimSuffix(strings.TrimSpace(body), "}"))
		} else if words := strings.Fields(command); len(words) > 0 {
			out := p.do(words)
			if p.out.WriteString(out); out != "" && !strings.HasSuffix(out, "\n") {
				p.out.WriteString("\n")
			}
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

// repeat carries out a body for each number. What prints the same as before is counted.
func (p *player) repeat(head []string, body string) {
	count := 0
	if len(head) == 2 {
		count, _ = strconv.Atoi(head[1])
	}
	if count < 1 {
		p.out.WriteString("it is: repeat NAME COUNT { COMMANDS }\n")
		return
	}
	var outs []string
	for i := range count {
		turn := player{do: p.do}
		turn.line(strings.ReplaceAll(body, "$"+head[0], strconv.Itoa(i)))
		outs = append(outs, turn.out.String())
	}
	for len(outs) > 0 {
		times := 1
		for times < len(outs) && outs[times] == outs[0] {
			times++
		}
		if p.out.WriteString(outs[0]); times > 1 && outs[0] != "" {
			fmt.Fprintf(&p.out, "  %d times\n", times)
		}
		outs = outs[times:]
	}
}
