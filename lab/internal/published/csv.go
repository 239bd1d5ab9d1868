// Package published compares figures of the papers with what the model computes.
//
// A row of the table states a quantity under a condition. Rules say from its words
// which computation it stands for; its id and the published value take no part. A row
// that is not computed is listed with the reason.
package published

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// Row is a published figure as the file states it.
type Row struct {
	ID, Source, Quantity, Condition, Value, Unit string
	Line                                         int // of the file, 0 if it comes from none
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

// byteOrderMark in UTF-8.
const byteOrderMark = "\ufeff"

const header = "id,source,quantity,condition,value,unit"

// Read parses a table: CSV with the columns id, source, quantity, condition,
// value and unit; name is used in errors.
func Read(r io.Reader, name string) ([]Row, error) {
	b := bufio.NewReader(r)
	// Spreadsheets write a byte order mark.
	if mark, _ := b.Peek(len(byteOrderMark)); string(mark) == byteOrderMark {
		_, _ = b.Discard(len(mark))
	}
	c := csv.NewReader(b)
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
		row := Row{ID: record[0], Source: record[1], Quantity: record[2], Condition: record[3], Value: record[4], Unit: record[5], Line: line}
		if row.ID == "" || seen[row.ID] {
			return nil, &Error{File: name, Line: line, Hint: fmt.Sprintf("id %q is empty or there twice", row.ID), Err: ErrTable}
		}
		seen[row.ID] = true
		rows = append(rows, row)
	}
}

// Figure reads the value of a row: "215", "~215", "<80", ">120", "120-132", "1,280" or
// "4K". Words of the condition such as "above" or "under" make a bound of a bare number.
func (r Row) Figure() (Figure, error) {
	text := strings.TrimSpace(r.Value)
	for _, mark := range []string{"~", "≈", "about ", "approx. ", "ca. ", "="} {
		text = strings.TrimSpace(strings.TrimPrefix(text, mark))
	}
	relation, text := relationOf(text, strings.ToLower(r.Condition))
	low, high, ranged := strings.Cut(strings.ReplaceAll(text, "–", "-"), "-")
	f := Figure{Relation: relation}
	var okLow, okHigh bool
	f.Low, okLow = number(low)
	if f.High, okHigh = f.Low, okLow; ranged {
		f.High, okHigh = number(high)
		f.Relation = Within
	}
	if !okLow || !okHigh || f.Low > f.High {
		return Figure{}, fmt.Errorf("line %d, %s: value %q: %w (allowed: \"215\", \"~215\", \"<80\", \">120\", \"120-132\", \"4K\")", r.Line, r.ID, r.Value, ErrFigure)
	}
	return f, nil
}

func relationOf(text, condition string) (Relation, string) {
	for _, c := range []struct {
		sign     string
		relation Relation
	}{{"<=", AtMost}, {">=", AtLeast}, {"≤", AtMost}, {"≥", AtLeast}, {"<", AtMost}, {">", AtLeast}} {
		if rest, ok := strings.CutPrefix(text, c.sign); ok {
			return c.relation, rest
		}
	}
	switch {
	case has(condition, "under"):
		return AtMost, text
	case has(condition, "above", "over"):
		return AtLeast, text
	}
	return Equal, text
}

// number reads a positive number, with thousands apart by commas, or K for 1024.
func number(text string) (float64, bool) {
	text, kilo := strings.CutSuffix(strings.TrimSpace(text), "K")
	if strings.ContainsAny(text, "xXpP_") {
		return 0, false
	}
	v, err := strconv.ParseFloat(thousands.ReplaceAllString(text, "$1"), 64)
	if err != nil || !(v > 0) || math.IsInf(v, 0) {
		return 0, false
	}
	if kilo {
		v *= 1024
	}
	return v, true
}

var thousands = regexp.MustCompile(`,(\d{3})`)

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
