package main

import (
	"fmt"
	"regexp"
	"strings"
)

// target matches jumps and where they lead.
var target = regexp.MustCompile(`\b(j[a-z]+|b\.[a-z]+) (?:\.[+-])?0x[0-9a-f]+`)

// check holds the functions of a program, instructions by symbol, against the
// rules of the architecture and returns what is wrong.
func (a architecture) check(functions map[string][]string) []error {
	var problems []error
	for _, r := range a.rules {
		code, ok := functions[r.full()]
		if !ok {
			problems = append(problems, fmt.Errorf("%s is not in the program", r.symbol))
			continue
		}
		if got := target.ReplaceAllString(strings.Join(code, "; "), "$1 ADDRESS"); got != r.code {
			problems = append(problems, fmt.Errorf("%s is\n\t%s\nand should be\n\t%s", r.symbol, got, r.code))
		}
		// Not there if the linker left it out.
		if err := a.checkWay(functions[module+r.symbol]); err != nil {
			problems = append(problems, fmt.Errorf("%s, on the way into assembly: %w", r.symbol, err))
		}
	}
	return problems
}

// checkWay looks at the code between Go and assembly, which the compiler makes
// and which only passes arguments on.
func (a architecture) checkWay(code []string) error {
	for _, c := range code {
		if a.locked.MatchString(c) {
			return fmt.Errorf("locked instruction %q", c)
		}
		if strings.HasPrefix(c, "nop") {
			continue // fills up a line: what looks like an operand is not accessed
		}
		for _, m := range a.memory.FindAllString(c, -1) {
			if !a.own.MatchString(m) {
				return fmt.Errorf("access to memory %q", c)
			}
		}
	}
	return nil
}
