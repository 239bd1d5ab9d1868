package plot

import (
	"fmt"

	"github.com/trapeze-nic/trapeze/pipeline/dmalog"
)

// Flow is a packet flow graph: four bands, one for each engine, and a stripe for
// each transfer. Shades alternate from packet to packet. A run in both directions has
// eight bands. It is drawn from records of virtual time and from the log of a live
// device alike.
type Flow struct {
	Title   string
	Note    string
	Records []dmalog.Record
	From    int64 // picoseconds; transfers outside From to To are left out
	To      int64 // 0 = to the last transfer
	// Directions name the flows of a run in both directions; empty: there and back.
	Directions [2]string
}

const (
	flowWidth  = 1000
	bandHeight = 44
	bandGap    = 16
	flowLeft   = 118
	flowRight  = 24
	// MaxStripes bounds a picture; more could not be told apart.
	MaxStripes = 20_000
)

// Shades of successive packets: dark, light, middle, hatched by their outline.
var shades = []string{"#222222", "#c8c8c8", "#777777", "#f2f2f2"}

// band is a row of a picture: one engine in one direction.
type band struct {
	flow   int
	engine dmalog.Engine
}

// bandsOf returns the rows for records, all engines of one direction first.
func bandsOf(records []dmalog.Record) (bands []band) {
	flows := 0
	for _, r := range records {
		flows = max(flows, r.Flow+1)
	}
	for flow := range flows {
		for e := range dmalog.Engines {
			bands = append(bands, band{flow, e})
		}
	}
	return bands
}

// directions name the flows of a run in both directions.
var directions = [2]string{"there", "back"}

// name is the engine's, with the direction if there are two.
func (b band) name(bands []band, directions [2]string) string {
	if len(bands) <= int(dmalog.Engines) {
		return b.engine.String()
	}
	return b.engine.String() + ", " + directions[b.flow%len(directions)]
}

// SVG draws the graph.
func (f Flow) SVG() ([]byte, error) {
	var shown []dmalog.Record
	to := f.To
	for _, r := range f.Records {
		if r.Engine < dmalog.Engines && r.End > f.From && (f.To == 0 || r.Start < f.To) {
			shown = append(shown, r)
			if f.To == 0 {
				to = max(to, r.End)
			}
		}
	}
	if len(shown) == 0 || to <= f.From {
		return nil, fmt.Errorf("%s: %w", f.Title, ErrEmpty)
	}
	if len(shown) > MaxStripes {
		return nil, fmt.Errorf("%s: %d transfers, at most %d can be drawn: give a shorter span of time: %w", f.Title, len(shown), MaxStripes, ErrTooMany)
	}
	bands := bandsOf(f.Records)
	if f.Directions == ([2]string{}) {
		f.Directions = directions
	}
	axis := top + float64(len(bands))*(bandHeight+bandGap)
	c := newCanvas(flowWidth, axis+66, f.Title)
	c.text(flowLeft, 24, "start", `font-size="15" font-weight="bold"`, f.Title)
	c.text(flowLeft, 44, "start", `fill="#444"`, f.Note)
	x := newScale(Axis{Label: "time, microseconds", Exact: true}, dmalog.Microseconds(f.From), dmalog.Microseconds(to), flowLeft, flowWidth-flowRight)
	for i, b := range bands {
		y := bandAt(i)
		c.rect(flowLeft, y, flowWidth-flowRight-flowLeft, bandHeight, `fill="#fbfbfb" stroke="#bbb" stroke-width="0.7"`)
		c.text(flowLeft-8, y+bandHeight/2+4, "end", "", b.name(bands, f.Directions))
	}
	for _, v := range x.ticks() {
		c.line(x.at(v), top, x.at(v), axis+5, `stroke="#ccc" stroke-width="0.7" stroke-dasharray="2 3"`)
		c.text(x.at(v), axis+18, "middle", "", x.format(v))
	}
	c.line(flowLeft, axis, flowWidth-flowRight, axis, `stroke="black"`)
	c.text((flowLeft+flowWidth-flowRight)/2.0, axis+38, "middle", "", x.Label)
	c.text(flowLeft, axis+58, "start", `fill="#444" font-size="11"`, "One stripe is one transfer; the shade changes from packet to packet.")
	f.stripes(c, shown, x, to)
	return c.bytes(), nil
}

// bandAt is the upper edge of band number i.
func bandAt(i int) float64 { return top + float64(i)*(bandHeight+bandGap) }

func (f Flow) stripes(c *canvas, shown []dmalog.Record, x scale, to int64) {
	for _, r := range shown {
		y := bandAt(r.Flow*int(dmalog.Engines) + int(r.Engine))
		from, end := x.at(dmalog.Microseconds(max(r.Start, f.From))), x.at(dmalog.Microseconds(min(r.End, to)))
		width := max(end-from, 0.6)
		c.rect(from, y+3, width, bandHeight-6, `fill="`+shades[r.Packet%len(shades)]+`" stroke="black" stroke-width="0.5"`)
		// The packet's number, where there is room for it.
		if label := fmt.Sprint(r.Packet); width > 12+7*float64(len(label)) {
			ink := "black"
			if r.Packet%len(shades) == 0 || r.Packet%len(shades) == 2 {
				ink = "white"
			}
			c.text(from+width/2, y+bandHeight/2+4, "middle", `font-size="11" fill="`+ink+`"`, label)
		}
	}
}
