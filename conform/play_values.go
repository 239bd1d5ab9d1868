package conform

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/trapeze-nic/trapeze/internal/script"
	"github.com/trapeze-nic/trapeze/via"
)

func (p *play) part(a *script.Arguments) []byte {
	b := p.value(a.Words[0])
	if m, ok := b.Interface().(*via.Memory); ok {
		b = reflect.ValueOf(m.Bytes())
	}
	if len(a.Words) == 1 {
		return b.Bytes()
	}
	from := int(p.number(a.Words[1]))
	return b.Bytes()[from : from+int(p.number(a.Words[2]))]
}

// fill is MEMORY OFFSET LENGTH SEED: it writes a pattern of that seed. Seed 0 are zeros.
func (p *play) fill(a *script.Arguments) {
	seed := p.number(a.Words[3])
	if seed == 0 {
		clear(p.part(a))
		return
	}
	pattern(p.part(a), seed)
}

// holds is MEMORY OFFSET LENGTH SEED [SKIP]: the pattern of that seed is there, from its byte SKIP on.
func (p *play) holds(a *script.Arguments) string {
	b, seed, skip := p.part(a), p.number(a.Words[3]), 0
	if len(a.Words) > 4 {
		skip = int(p.number(a.Words[4]))
	}
	want := make([]byte, skip+len(b))
	if seed != 0 {
		pattern(want, seed)
	}
	if want = want[skip:]; !bytes.Equal(b, want) {
		at := 0
		for b[at] == want[at] {
			at++
		}
		return fmt.Sprintf("%s: byte %d is %#x, not %#x", strings.Join(a.Words, " "), at, b[at], want[at])
	}
	return ""
}

// hex is MEMORY OFFSET LENGTH: it prints bytes, 16 in a line.
func (p *play) hex(a *script.Arguments) string {
	var lines []string
	for row := range slices.Chunk(p.part(a), 16) {
		lines = append(lines, fmt.Sprintf("% x", row))
	}
	return strings.Join(lines, "\n")
}

// show is PATH...: it prints their values.
func (p *play) show(a *script.Arguments) string {
	var lines []string
	for _, path := range a.Words {
		lines = append(lines, path+": "+p.say(p.value(path)))
	}
	return strings.Join(lines, "\n")
}

// same is A B: two numbers, or two objects, are equal.
func (p *play) same(a *script.Arguments) string {
	return p.compare(a, "is not", func(x, y any) bool { return x == y })
}

// differ is A B: they are not.
func (p *play) differ(a *script.Arguments) string {
	return p.compare(a, "is", func(x, y any) bool { return x != y })
}

// least is A B: A is B or more.
func (p *play) least(a *script.Arguments) string {
	return p.compare(a, "is less than", func(x, y any) bool { return x.(uint64) >= y.(uint64) })
}

func (p *play) compare(a *script.Arguments, wrong string, holds func(x, y any) bool) string {
	if x, y := p.operand(a.Words[0]), p.operand(a.Words[1]); !holds(x, y) {
		return fmt.Sprintf("%s %s %s: %v, %v", a.Words[0], wrong, a.Words[1], x, y)
	}
	return ""
}

func (p *play) operand(word string) any {
	if word[0] >= '0' && word[0] <= '9' || strings.ContainsAny(word, "+-*|&^") {
		return p.number(word)
	}
	switch v := p.value(word); {
	case v.CanInt():
		return uint64(v.Int())
	case v.CanUint():
		return v.Uint()
	default:
		return v.Interface()
	}
}

// until is PATH VALUE: it waits until the path's value is printed so.
func (p *play) until(a *script.Arguments) {
	want := strings.Join(a.Words[1:], " ")
	p.Until(strings.Join(a.Words, " "), func() bool { return p.say(p.value(a.Words[0])) == want })
}

// keepNumber is NAME EXPRESSION: a number with a name.
func (p *play) keepNumber(a *script.Arguments) {
	p.names[a.Words[0]] = reflect.ValueOf(p.number(a.Words[1]))
}

// set is PATH FIELD=VALUE...: it changes what a path leads to.
func (p *play) set(a *script.Arguments) {
	p.change(reflect.Indirect(p.value(a.Words[0])), a)
}
