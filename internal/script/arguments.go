package script

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Arguments are the words behind a command's name: those that change a field, such as Length+=1,
// and others.
type Arguments struct {
	Words   []string
	Changes []Change
}

// Change is PATH=VALUE, or another operation in place of =.
type Change struct{ Path, Op, Value string }

var operations = []string{"+=", "-=", "^=", "|=", "&=", "="}

// Parse sorts words.
func Parse(words []string) *Arguments {
	a := &Arguments{}
	for _, w := range words {
		i := strings.IndexByte(w, '=')
		if i < 1 {
			a.Words = append(a.Words, w)
			continue
		}
		op := "="
		for _, o := range operations[:5] {
			if strings.HasSuffix(w[:i+1], o) {
				op = o
			}
		}
		a.Changes = append(a.Changes, Change{w[:i+1-len(op)], op, w[i+1:]})
	}
	return a
}

// Flag takes a word out and reports whether it was there.
func (a *Arguments) Flag(word string) bool {
	i := slices.Index(a.Words, word)
	if i >= 0 {
		a.Words = slices.Delete(a.Words, i, i+1)
	}
	return i >= 0
}

// Option takes a change out and returns its value.
func (a *Arguments) Option(path string) (string, bool) {
	for i, c := range a.Changes {
		if c.Path == path && c.Op == "=" {
			a.Changes = slices.Delete(a.Changes, i, i+1)
			return c.Value, true
		}
	}
	return "", false
}

// Of returns what a change makes of an old number. The value of its right side is by.
func (c Change) Of(old, by uint64) uint64 {
	switch c.Op {
	case "+=":
		return old + by
	case "-=":
		return old - by
	case "^=":
		return old ^ by
	case "|=":
		return old | by
	case "&=":
		return old & by
	}
	return by
}

// Number is the value of an expression: words and numbers with + - * ^ | & and <<, from left to right.
func Number(expression string, word func(string) uint64) uint64 {
	total, op, rest := uint64(0), byte('+'), expression
	for {
		i := strings.IndexAny(rest, "+-*^|&<")
		w := rest
		if i >= 0 {
			w = rest[:i]
		}
		v := uint64(0)
		if w != "" {
			v = word(w)
		}
		switch op {
		case '*':
			total *= v
		case '<':
			total <<= v
		default:
			total = Change{Op: string(op) + "="}.Of(total, v)
		}
		if i < 0 {
			return total
		}
		op, rest = rest[i], rest[i+1:]
		if op == '<' {
			rest = strings.TrimPrefix(rest, "<")
		}
	}
}

// Field finds what a path such as Payload.Address or RemoteMAC.0 leads to.
func Field(v reflect.Value, path string) (reflect.Value, error) {
	for name := range strings.SplitSeq(path, ".") {
		if i, err := strconv.Atoi(name); err == nil && (v.Kind() == reflect.Array || v.Kind() == reflect.Slice) && i < v.Len() {
			v = v.Index(i)
			continue
		}
		if v.Kind() != reflect.Struct || !v.FieldByName(name).IsValid() {
			return v, fmt.Errorf("%v has no field %q", v.Type(), name)
		}
		v = v.FieldByName(name)
	}
	return v, nil
}

// Span reads names such as s1..4 or s,t.
func Span(s string) (names []string) {
	for part := range strings.SplitSeq(s, ",") {
		first, last, many := strings.Cut(part, "..")
		i := len(strings.TrimRight(first, "0123456789"))
		from, err := strconv.Atoi(first[i:])
		to, err2 := strconv.Atoi(last)
		if !many || err != nil || err2 != nil {
			names = append(names, part)
			continue
		}
		for n := from; n <= to; n++ {
			names = append(names, first[:i]+strconv.Itoa(n))
		}
	}
	return names
}

// Fold is the opposite of Span.
func Fold(names []string) string {
	var parts []string
	for i := 0; i < len(names); {
		base := strings.TrimRight(names[i], "0123456789")
		n, err := strconv.Atoi(names[i][len(base):])
		j := i + 1
		for err == nil && j < len(names) && names[j] == base+strconv.Itoa(n+j-i) {
			j++
		}
		if j-i > 2 {
			parts = append(parts, fmt.Sprintf("%s..%d", names[i], n+j-i-1))
		} else {
			parts = append(parts, names[i:j]...)
		}
		i = j
	}
	return strings.Join(parts, " ")
}
