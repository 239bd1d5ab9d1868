package plot

import (
	"fmt"

	"github.com/trapeze-nic/trapeze/internal/dmalog"
)

// Bands is a picture of what several do in time: a band for each of them, and in it a
// stripe for each thing that it does.
type Bands struct {
	Title   string
	Note    string
	Legend  string // below the axis: what a stripe is
	Names   []string
	Stripes []Stripe
	From    int64 // picoseconds; stripes outside From to To are left out
	To      int64 // 0 = to the last stripe
}

// Stripe is one thing that was done.
type Stripe struct {
	Band   int // 0 to the number of names, less one
	Number int // is written on it where there is room, and decides its colour
	Start  int64
	End    int64
	Low    bool // drawn grey, at a third of the height, without its number
}

const (
	flowWidth  = 1000
	bandHeight = 44
	bandGap    = 16
	lowHeight  = 13
	flowLeft   = 118
	flowRight  = 24
	gap        = 1 // between stripes that touch, so that they can be counted
	// MaxStripes bounds a picture; more could not be told apart.
	MaxStripes = 20_000
)

// hues of successive numbers are dark and light in turns, so that they differ without colours, too.
var hues = []string{"#1b4f8a", "#e69f00", "#8c3b6b", "#3f9b6f"}

// stripe draws what was done. It has no outline, of which a narrow one would be all made.
func (c *canvas) stripe(x, y, width, height float64, hue string) {
	if width = max(width, 1.2); width > 2*gap {
		width -= gap
	}
	c.rect(x, y, width, height, `fill="`+hue+`"`)
}

// SVG draws the picture.
func (b Bands) SVG() ([]byte, error) {
	var shown []Stripe
	to := b.To
	for _, s := range b.Stripes {
		if s.End > b.From && (b.To == 0 || s.Start < b.To) {
			shown = append(shown, s)
			if b.To == 0 {
				to = max(to, s.End)
			}
		}
	}
	if len(shown) == 0 || to <= b.From {
		return nil, fmt.Errorf("%s: %w", b.Title, ErrEmpty)
	}
	if len(shown) > MaxStripes {
		return nil, fmt.Errorf("%s: %d transfers, at most %d can be drawn: give a shorter span of time: %w", b.Title, len(shown), MaxStripes, ErrTooMany)
	}
	axis := bandAt(len(b.Names))
	c := newCanvas(flowWidth, axis+66, b.Title)
	c.text(flowLeft, 24, "start", `font-size="15" font-weight="bold"`, b.Title)
	c.text(flowLeft, 44, "start", `fill="#444"`, b.Note)
	x := newScale(Axis{Label: "time, us", Exact: true}, dmalog.Microseconds(b.From), dmalog.Microseconds(to), flowLeft, flowWidth-flowRight)
	for i, name := range b.Names {
		y := bandAt(i)
		c.rect(flowLeft, y, flowWidth-flowRight-flowLeft, bandHeight, `fill="#fbfbfb" stroke="#bbb" stroke-width="0.7"`)
		c.text(flowLeft-8, y+bandHeight/2+4, "end", "", name)
	}
	for _, v := range x.ticks() {
		c.line(x.at(v), top, x.at(v), axis+5, `stroke="#ccc" stroke-width="0.7" stroke-dasharray="2 3"`)
		c.text(x.at(v), axis+18, "middle", "", x.format(v))
	}
	c.line(flowLeft, axis, flowWidth-flowRight, axis, `stroke="black"`)
	c.text((flowLeft+flowWidth-flowRight)/2.0, axis+38, "middle", "", x.Label)
	c.text(flowLeft, axis+58, "start", `fill="#444" font-size="11"`, b.Legend)
	b.draw(c, shown, x, to)
	return c.bytes(), nil
}

// bandAt is the upper edge of band number i.
func bandAt(i int) float64 { return top + float64(i)*(bandHeight+bandGap) }

func (b Bands) draw(c *canvas, shown []Stripe, x scale, to int64) {
	for _, s := range shown {
		y := bandAt(s.Band)
		from, end := x.at(dmalog.Microseconds(max(s.Start, b.From))), x.at(dmalog.Microseconds(min(s.End, to)))
		if s.Low {
			c.stripe(from, y+bandHeight-3-lowHeight, end-from, lowHeight, "#888888")
			continue
		}
		c.stripe(from, y+3, end-from, bandHeight-6, hues[s.Number%len(hues)])
		if label := fmt.Sprint(s.Number); end-from > 12+7*float64(len(label)) {
			ink := [2]string{"white", "black"}[s.Number%2]
			c.text((from+end)/2, y+bandHeight/2+4, "middle", `font-size="11" fill="`+ink+`"`, label)
		}
	}
}
