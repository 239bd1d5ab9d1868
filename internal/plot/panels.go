package plot

import (
	"fmt"
	"strings"

	"github.com/trapeze-nic/trapeze/internal/dmalog"
)

// Panels are packet flow graphs side by side and below each other: a row for each of some
// policies, a column for each load. The panels of a column share their axis.
type Panels struct {
	Title   string
	Notes   []string // lines below the title
	Columns []Column
	Rows    []PanelRow
}

// Column is a load, and how much time its panels show, in picoseconds.
type Column struct {
	Name string
	Span int64
}

// PanelRow is a policy's graphs, one for each column.
type PanelRow struct {
	Name   string
	Panels []Panel
}

// Panel is one graph: the transfers of one direction from From on, by their engines.
type Panel struct {
	Note    string // above it
	Records []dmalog.Record
	From    int64 // picoseconds; what ended before is left out, and time counts from here
}

const (
	panelLeft   = 66 // of the names of engines
	panelGap    = 18
	panelBand   = 11
	panelNote   = 20
	panelHeight = panelNote + panelBand*int(dmalog.Engines) + 9
	noteHeight  = 17
)

// SVG draws the graphs.
func (p Panels) SVG() ([]byte, error) {
	if len(p.Rows) == 0 || len(p.Columns) == 0 {
		return nil, fmt.Errorf("%s: %w", p.Title, ErrEmpty)
	}
	head := 34 + noteHeight*len(p.Notes) + 24
	c := newCanvas(flowWidth, float64(head+panelHeight*len(p.Rows)+40), p.Title)
	c.text(12, 24, "start", `font-size="16" font-weight="bold"`, p.Title)
	for i, note := range p.Notes {
		c.text(12, float64(44+noteHeight*i), "start", `fill="#333"`, note)
	}
	width := (flowWidth - panelLeft - panelGap*float64(len(p.Columns))) / float64(len(p.Columns))
	for i, column := range p.Columns {
		if err := p.check(i); err != nil {
			return nil, err
		}
		left := panelLeft + float64(i)*(width+panelGap)
		x := newScale(Axis{Exact: true}, 0, dmalog.Microseconds(column.Span), left, left+width)
		c.text(left, float64(head-8), "start", `font-size="13" font-weight="bold" fill="#333"`, column.Name)
		bottom := float64(head + panelHeight*len(p.Rows))
		for _, v := range x.ticks() {
			c.line(x.at(v), float64(head), x.at(v), bottom+4, `stroke="#ddd" stroke-width="0.7"`)
			c.text(x.at(v), bottom+17, "middle", "", x.format(v))
		}
		c.text(left+width/2, bottom+33, "middle", "", "time, us")
		for k, row := range p.Rows {
			row.Panels[i].draw(c, x, float64(head+panelHeight*k), i == 0, row.Name, column.Span)
		}
	}
	return c.bytes(), nil
}

// check refuses a column that cannot be drawn.
func (p *Panels) check(column int) error {
	c, transfers := p.Columns[column], 0
	for _, row := range p.Rows {
		if column >= len(row.Panels) {
			return fmt.Errorf("%s, %s, %s: %w", p.Title, c.Name, row.Name, ErrEmpty)
		}
		panel := &row.Panels[column]
		for _, r := range panel.Records {
			if panel.shows(r, c.Span) {
				transfers++
			}
		}
	}
	switch {
	case c.Span <= 0 || transfers == 0:
		return fmt.Errorf("%s, %s: %w", p.Title, c.Name, ErrEmpty)
	case transfers > MaxStripes:
		return fmt.Errorf("%s, %s: %d transfers, at most %d can be drawn: %w", p.Title, c.Name, transfers, MaxStripes, ErrTooMany)
	}
	return nil
}

// shows reports whether some of a transfer is in the panel.
func (p *Panel) shows(r dmalog.Record, span int64) bool {
	return r.Engine < dmalog.Engines && r.End > p.From && r.Start-p.From < span
}

// draw draws a panel whose upper edge is at y; the first of a row has the engines' names.
func (p *Panel) draw(c *canvas, x scale, y float64, first bool, name string, span int64) {
	c.text(x.from, y+14, "start", `font-weight="bold"`, name)
	if p.Note != "" {
		c.text(x.to, y+14, "end", `fill="#333"`, p.Note)
	}
	for e := range dmalog.Engines {
		top := y + panelNote + panelBand*float64(e)
		c.rect(x.from, top, x.to-x.from, panelBand-1, `fill="#f4f4f4"`)
		if first {
			c.text(x.from-6, top+panelBand-2, "end", `font-size="11" fill="#333"`, e.String())
		}
	}
	for _, r := range p.Records {
		if !p.shows(r, span) {
			continue
		}
		left, right := x.at(dmalog.Microseconds(max(r.Start-p.From, 0))), x.at(dmalog.Microseconds(min(r.End-p.From, span)))
		c.stripe(left, y+panelNote+panelBand*float64(r.Engine), right-left, panelBand-1, hues[r.Packet%len(hues)])
	}
}

// Figure writes a number for a note: with one decimal if it has one.
func Figure(v float64) string { return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0") }
