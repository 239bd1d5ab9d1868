package option

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// KeyError is about the value of an option, of an address or a file.
type KeyError struct {
	Key   string
	Value string // empty if it is not given
	Err   error
}

func (e *KeyError) Error() string {
	if e.Value == "" {
		return fmt.Sprintf("option %s: %v", e.Key, e.Err)
	}
	return fmt.Sprintf("option %s=%s: %v", e.Key, e.Value, e.Err)
}

// Unwrap returns Err.
func (e *KeyError) Unwrap() error { return e.Err }

// UnknownError is about an option that there is not.
type UnknownError struct {
	Key   string
	Known []string
}

func (e *UnknownError) Error() string { return fmt.Sprintf("unknown option %q", e.Key) }

// Nearest returns the option that differs from the unknown one in one or two letters, "" if there is none.
func (e *UnknownError) Nearest() (nearest string) {
	best := min(3, len(e.Key))
	for _, name := range e.Known {
		if d := differences(e.Key, name); d < best {
			best, nearest = d, name
		}
	}
	return nearest
}

// Hint asks whether the nearest option was meant, and else names those that there are.
func (e *UnknownError) Hint() string {
	if nearest := e.Nearest(); nearest != "" {
		return "did you mean " + nearest + "?"
	}
	return "known options: " + strings.Join(e.Known, ", ")
}

// Names lists the options of structs.
func Names(tag string, into ...any) (names []string) {
	for _, f := range fieldsOf(tag, into...) {
		names = append(names, f.Name)
	}
	return names
}

// Decode reads options, as those of an address, into the fields of structs that have a tag with their names (see Field).
// It fails with *UnknownError and *KeyError.
func Decode(tag string, values map[string][]string, into ...any) error {
	fields := fieldsOf(tag, into...)
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if !slices.ContainsFunc(fields, func(f Field) bool { return f.Name == key }) {
			return &UnknownError{key, Names(tag, into...)}
		}
	}
	for _, f := range fields {
		texts, given := values[f.Name]
		standard, otherwise := f.Tag.Lookup("default")
		switch {
		case !given && f.Tag.Get("required") != "":
			return &KeyError{f.Name, "", fmt.Errorf("it is required: %s", f.Allowed())}
		case !given && !otherwise:
			continue
		case !given:
			texts = []string{standard}
		}
		for other := range strings.SplitSeq(f.Tag.Get("excludes"), ",") {
			if _, both := values[other]; both && given {
				return &KeyError{f.Name, "", fmt.Errorf("it excludes %s: leave one of the two out", other)}
			}
		}
		if err := f.Set(texts...); err != nil {
			return &KeyError{f.Name, strings.Join(texts, ","), err}
		}
	}
	return nil
}

// differences counts the letters that have to be put in, left out or replaced to make b of a.
func differences(a, b string) int {
	row := make([]int, len(b)+1) // for what has been read of a
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := corner
			if a[i] != b[j] {
				replaced++
			}
			corner, row[j+1] = row[j+1], min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
