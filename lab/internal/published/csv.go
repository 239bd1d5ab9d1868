// Package published compares figures of the papers with what the model computes.
//
// A row of the table states a figure as a paper prints it, and its other columns say
// which computation stands for it: on which platforms, under which policy and with which
// payload. The id and the published value take no part in the computation. A row that is
// not computed states the reason.
package published

import (
	"bufio"
	_ "embed"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/trapeze-nic/trapeze/internal/cells"
	"github.com/trapeze-nic/trapeze/lab/internal/coherence"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// Row is a published figure as the file states it, and what to compute for it.
type Row struct {
	ID        string `json:"id"`
	Source    string `json:"source" text:"-"`
	Quantity  string `json:"quantity" text:"-"`
	Condition string `json:"condition" text:"-"`
	Task
	Value  string `json:"published"`
	Unit   string `json:"unit"`
	Figure Figure `json:"-"` // the value in numbers; zero unless the row is computed
}

// Task holds what a row says to compute.
type Task struct {
	Bound     Relation `json:"bound,omitempty" help:"< or > if the paper's words, not the value, make it a bound"`
	Compute   string   `json:"-"` // the name of a computation; empty = the row is not modelled
	Platforms []string `json:"-"` // names of built-in profiles, or of one memory system
	Policy    string   `json:"-"` // or mechanisms of transfer
	Payload   int      `json:"-"` // bytes
	Send      int      `json:"-"` // threshold or pulse of the sender in bytes, 0 = the policy's own
	Receive   int      `json:"-"` // likewise of the receiver
	Fit       bool     `json:"-"` // the parameters of the platform may be fitted to the row
	Loose     bool     `json:"-"` // but the row weighs less there
	Note      string   `json:"-"` // what is computed in words, or why nothing is
}

// Sentinel errors inside a *profile.Error, whose File has the line, and whose Key is a column.
var (
	ErrTable  = errors.New("not a table of published figures")
	ErrCell   = errors.New("column does not fit the row")
	ErrFigure = errors.New("not a number, bound or range")
)

// Columns of a table: what a paper says, and what to compute for it.
const (
	stated  = "id,source,quantity,condition,value,unit"
	tasks   = "bound,compute,platforms,policy,payload,send_pulse,receive_pulse,fit,note"
	Columns = stated + "," + tasks
)

//go:embed published.csv
var builtIn string

// byteOrderMark in UTF-8.
const byteOrderMark = "\ufeff"

// maxPayload is the longest payload that is computed for a row, in bytes.
const maxPayload = 1 << 20

// Read parses a table, CSV. It has all of Columns, in any order; others are left out. One that has none of those that
// say what to compute has them from the project's own table, for its rows with the same id, quantity, condition and unit.
// name is used in errors.
func Read(r io.Reader, name string) ([]Row, error) {
	b := bufio.NewReader(r)
	// Spreadsheets write a byte order mark.
	if mark, _ := b.Peek(len(byteOrderMark)); string(mark) == byteOrderMark {
		_, _ = b.Discard(len(mark))
	}
	c := csv.NewReader(b)
	p, rows := parser{}, []Row(nil)
	seen := map[string]bool{"": true}
	for {
		var err error
		switch p.record, err = c.Read(); {
		case err == io.EOF && p.columns != nil:
			return rows, nil
		case err != nil:
			line := 1
			if parse, ok := errors.AsType[*csv.ParseError](err); ok {
				line = parse.Line
			}
			return nil, &profile.Error{File: fmt.Sprint(name, ":", line), Allowed: "columns: " + Columns, Err: fmt.Errorf("%w: %w", ErrTable, err)}
		case p.columns == nil:
			p.header()
		default:
			row := p.row()
			if seen[row.ID] {
				p.bad("id", "an id that no other row has", fmt.Errorf("%w: %q is empty or there twice", ErrCell, row.ID))
			}
			seen[row.ID] = true
			rows = append(rows, row)
		}
		if p.err != nil {
			line, _ := c.FieldPos(0)
			p.err.File = fmt.Sprint(name, ":", line)
			return nil, p.err
		}
	}
}

// parser reads a record and keeps the first error.
type parser struct {
	columns, record []string
	own             []Row // of the project's table, if this one does not say what to compute
	err             *profile.Error
}

// header takes the record as the names of the columns.
func (p *parser) header() {
	p.columns = p.record
	needed := Columns
	if !slices.ContainsFunc(strings.Split(tasks, ","), func(name string) bool { return slices.Contains(p.columns, name) }) {
		needed = stated
		p.own, _ = Read(strings.NewReader(builtIn), "")
	}
	for name := range strings.SplitSeq(needed, ",") {
		if !slices.Contains(p.columns, name) {
			p.bad(name, "columns: "+Columns, fmt.Errorf("%w: there is no such column", ErrTable))
		}
	}
}

func (p *parser) bad(column, allowed string, err error) {
	if p.err == nil {
		p.err = &profile.Error{Key: "column " + column, Allowed: allowed, Err: err}
	}
}

func (p *parser) cell(column string) string { return p.record[slices.Index(p.columns, column)] }

// want reports a column whose text is not one of those allowed.
func (p *parser) want(ok bool, column, allowed, text string) {
	if !ok {
		p.bad(column, allowed, fmt.Errorf("%w: %q", ErrCell, text))
	}
}

// words reads a column of words, each of which is one of a list.
func (p *parser) words(column string, allowed []string) []string {
	words := strings.Fields(p.cell(column))
	for _, w := range words {
		p.want(slices.Contains(allowed, w), column, strings.Join(allowed, ", "), w)
	}
	return words
}

func (p *parser) row() Row {
	r := Row{ID: p.cell("id"), Source: p.cell("source"), Quantity: p.cell("quantity"), Condition: p.cell("condition"),
		Value: p.cell("value"), Unit: p.cell("unit")}
	if p.own == nil {
		r.Task = p.task()
	} else if i := slices.IndexFunc(p.own, r.alike); i >= 0 {
		r.Task = p.own[i].Task
	} else {
		r.Note = "the table does not say what to compute"
	}
	if p.err != nil || r.Compute == "" {
		return r
	}
	c := computations[r.Compute]
	if u, ok := units[r.Unit]; !ok || u.dimension&c.dimension == 0 {
		p.bad("unit", "a unit of what is computed", fmt.Errorf("%w: %q is no unit of %q", ErrCell, r.Unit, r.Compute))
	}
	var err error
	if r.Figure, err = figureOf(r.Value, r.Bound); err != nil {
		p.bad("value", `a value is written "215", "<80", ">120" or "120-132"`, err)
	}
	return r
}

// alike reports whether another table has the same row. The value may differ.
func (r *Row) alike(other Row) bool {
	return r.ID == other.ID && r.Quantity == other.Quantity && r.Condition == other.Condition && r.Unit == other.Unit
}

func (p *parser) task() Task {
	t := Task{Note: p.cell("note"), Compute: p.cell("compute"), Bound: Relation(p.cell("bound")), Policy: p.cell("policy")}
	c, ok := computations[t.Compute]
	if t.Compute == "" && t.Note != "" {
		return Task{Note: t.Note}
	}
	p.want(ok, "compute", "empty, or one of: "+strings.Join(Computations(), ", "), t.Compute)
	p.want(slices.Contains([]Relation{"", AtMost, AtLeast}, t.Bound), "bound", `empty, "<" or ">"`, string(t.Bound))
	platforms, policies := profile.Hosts.Names(), pipeline.PolicyNames()
	longest := maxPayload
	switch {
	case c.needs&celled != 0:
		platforms, longest = profile.CellHosts.Names(), cells.MaxPDU
	case c.needs&bridged != 0:
		platforms, longest = profile.Bridges.Names(), coherence.MaxBytes
	case c.needs&onSystem != 0:
		platforms, policies, longest = memorySystems(), mechanisms(), coherence.MaxBytes
	}
	t.Platforms = p.words("platforms", platforms)
	if len(t.Platforms) == 0 || len(t.Platforms) > 1 && c.fold == nil {
		p.bad("platforms", strings.Join(platforms, ", "), fmt.Errorf("%w: %q is of one platform, here are %d", ErrCell, t.Compute, len(t.Platforms)))
	}
	if c.needs&onSystem != 0 && c.dimension == percent { // against several
		p.words("policy", policies)
	} else {
		p.want(t.Policy == "" || slices.Contains(policies, t.Policy), "policy", strings.Join(policies, ", "), t.Policy)
	}
	p.want(strings.TrimSpace(t.Policy) != "" || c.needs&policy == 0, "policy", strings.Join(policies, ", "), t.Policy)
	t.Payload = p.bytes("payload", c.needs&payload != 0, longest)
	t.Send, t.Receive = p.bytes("send_pulse", false, t.Payload), p.bytes("receive_pulse", false, t.Payload)
	fit := p.cell("fit")
	t.Fit, t.Loose = fit == "yes" || fit == "loose", fit == "loose"
	p.want(fit == "" || t.Fit && len(t.Platforms) == 1, "fit", `empty, "yes" or "loose"; one platform`, fit)
	return t
}

// bytes reads a number of bytes from 1 to most; an optional one may be empty, which is 0.
func (p *parser) bytes(column string, needed bool, most int) int {
	text := p.cell(column)
	if text == "" && !needed {
		return 0
	}
	n, err := strconv.Atoi(text)
	p.want(err == nil && n >= 1 && n <= most, column, fmt.Sprintf("1 to %d bytes", most), text)
	return n
}
