package plot

import (
	"fmt"

	"github.com/trapeze-nic/trapeze/pipeline/dmalog"
)

// Flow is a packet flow graph: four bands, one for each engine, and a stripe for
// each transfer. Shades alternate from packet to packet. It is drawn from records
// of virtual time and from the log of a live device alike.
type Flow struct {
	Title   string
	Note    string
	Records []dmalog.Record
	Flow    int   // which direction of a bidirectional run
	From    int64 // picoseconds; transfers outside From to To are left out
	To      int64 // 0 = to the last transfer
}

const (
	flowWidth  = 1000
	bandHeight = 44
	bandGap    = 16
	flowLeft   = 90
	flowRight  = 24
	// MaxStripes bounds a picture; more could not be told apart.
	MaxStripes = 20_000
)

// Shades of successive packets: dark, light, middle, hatched by their outline.
var shades = []string{"#222222", "#c8c8c8", "#777777", "#f2f2f2"}

// SVG draws the graph.
func (f Flow) SVG() ([]byte, error) {
	var shown []dmalog.Record
	to := f.To
	for _, r := range f.Records {
		if r.Flow == f.Flow && r.Engine < dmalog.Engines && r.End > f.From && (f.To == 0 || r.Start < f.To) {
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
	bands := float64(dmalog.Engines)
	height := top + bands*(bandHeight+bandGap) + 66
	c := newCanvas(flowWidth, height, f.Title)
	c.text(flowLeft, 24, "start", `font-size="15" font-weight="bold"`, f.Title)
	c.text(flowLeft, 44, "start", `fill="#444"`, f.Note)
	x := newScale(Axis{Label: "time, microseconds", Exact: true}, dmalog.Microseconds(f.From), dmalog.Microseconds(to), flowLeft, flowWidth-flowRight)
	axis := top + bands*(bandHeight+bandGap)
	for e := range dmalog.Engines {
		y := top + float64(e)*(bandHeight+bandGap)
		c.rect(flowLeft, y, flowWidth-flowRight-flowLeft, bandHeight, `fill="#fbfbfb" stroke="#bbb" stroke-width="0.7"`)
		c.text(flowLeft-8, y+bandHeight/2+4, "end", "", e.String())
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

func (f Flow) stripes(c *canvas, shown []dmalog.Record, x scale, to int64) {
	for _, r := range shown {
		y := top + float64(r.Engine)*(bandHeight+bandGap)
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
