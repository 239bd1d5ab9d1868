// Package published compares figures of the papers with what the model computes.
//
// A row of the table states a quantity under a condition. Rules say which
// computation a row stands for, from its words (platform, payload, policy) or, for
// figures that are mentioned once, from its id. The published value takes no part
// in the computation. A row that no rule knows is listed as not modelled.
package published

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Row is a published figure as the file states it.
type Row struct {
	ID, Source, Quantity, Condition, Value, Unit string
}

// Relation is how a value binds.
type Relation string

// Relations of a published value to what was measured.
const (
	Equal   Relation = "="
	AtMost  Relation = "<"
	AtLeast Relation = ">"
	Within  Relation = "range"
)

// Figure is a published value as numbers; High differs from Low for a range.
type Figure struct {
	Low, High float64
	Relation  Relation
}

// Sentinel errors inside an *Error.
var (
	ErrTable  = errors.New("not a table of published figures")
	ErrFigure = errors.New("not a number, bound or range")
)

// Error names the line of a table that cannot be used.
type Error struct {
	File string
	Line int
	Hint string
	Err  error
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s:%d: %v (%s)", e.File, e.Line, e.Err, e.Hint)
}

func (e *Error) Unwrap() error { return e.Err }

const header = "id,source,quantity,condition,value,unit"

// Read parses a table: CSV with the columns id, source, quantity, condition,
// value and unit; name is used in errors.
func Read(r io.Reader, name string) ([]Row, error) {
	c := csv.NewReader(r)
	c.FieldsPerRecord = 6
	var rows []Row
	seen := map[string]bool{}
	for first := true; ; first = false {
		record, err := c.Read()
		if err == io.EOF && !first {
			return rows, nil
		}
		if err != nil {
			line := 1
			var parse *csv.ParseError
			if errors.As(err, &parse) {
				line = parse.Line
			}
			return nil, &Error{File: name, Line: line, Hint: "six columns: " + header, Err: fmt.Errorf("%w: %w", ErrTable, err)}
		}
		line, _ := c.FieldPos(0)
		if first {
			if strings.Join(record, ",") != header {
				return nil, &Error{File: name, Line: line, Hint: "first line: " + header, Err: ErrTable}
			}
			continue
		}
		row := Row{ID: record[0], Source: record[1], Quantity: record[2], Condition: record[3], Value: record[4], Unit: record[5]}
		if row.ID == "" || seen[row.ID] {
			return nil, &Error{File: name, Line: line, Hint: fmt.Sprintf("id %q is empty or there twice", row.ID), Err: ErrTable}
		}
		seen[row.ID] = true
		rows = append(rows, row)
	}
}

// Figure reads the value of a row: "215", "<80", ">120", "120-132" or "1.2". Words
// of the condition such as "above" or "under" make a bound of a bare number.
func (r Row) Figure() (Figure, error) {
	text := strings.TrimSpace(r.Value)
	relation := Equal
	switch {
	case strings.HasPrefix(text, "<"):
		relation, text = AtMost, text[1:]
	case strings.HasPrefix(text, ">"):
		relation, text = AtLeast, text[1:]
	case hasWord(r.Condition, "under"):
		relation = AtMost
	case hasWord(r.Condition, "above") || hasWord(r.Condition, "over"):
		relation = AtLeast
	}
	if low, high, ok := strings.Cut(text, "-"); ok && low != "" {
		l, err1 := strconv.ParseFloat(low, 64)
		h, err2 := strconv.ParseFloat(high, 64)
		if err1 == nil && err2 == nil && l <= h {
			return Figure{Low: l, High: h, Relation: Within}, nil
		}
		return Figure{}, fmt.Errorf("%s: %q: %w", r.ID, r.Value, ErrFigure)
	}
	v, err := strconv.ParseFloat(strings.TrimSuffix(text, "K"), 64)
	if err != nil {
		return Figure{}, fmt.Errorf("%s: %q: %w", r.ID, r.Value, ErrFigure)
	}
	if strings.HasSuffix(text, "K") {
		v *= 1024
	}
	return Figure{Low: v, High: v, Relation: relation}, nil
}

// Error returns how far a computed value is off, relative to the published one;
// 0 inside a bound or range.
func (f Figure) Error(computed float64) float64 {
	switch {
	case f.Relation == AtMost && computed <= f.High:
		return 0
	case f.Relation == AtLeast && computed >= f.Low:
		return 0
	case f.Relation == Within && computed >= f.Low && computed <= f.High:
		return 0
	case computed < f.Low:
		return (computed - f.Low) / f.Low
	}
	return (computed - f.High) / f.High
}

// hasWord reports whether text contains word between non-letters.
func hasWord(text, word string) bool {
	for _, w := range strings.FieldsFunc(strings.ToLower(text), func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9')
	}) {
		if w == word {
			return true
		}
	}
	return false
}
