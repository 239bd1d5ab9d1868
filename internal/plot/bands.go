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
	Apart   bool  // stripes that touch show a gap between them, so that dark ones can be counted
	From    int64 // picoseconds; stripes outside From to To are left out
	To      int64 // 0 = to the last stripe
}

// Stripe is one thing that was done.
type Stripe struct {
	Band   int // 0 to the number of names, less one
	Number int // is written on it where there is room, and decides its shade
	Start  int64
	End    int64
	Low    bool // drawn at a third of the height, without its number
}

const (
	flowWidth  = 1000
	bandHeight = 44
	bandGap    = 16
	lowHeight  = 13
	flowLeft   = 118
	flowRight  = 24
	gap        = 1.2 // between stripes that are kept apart
	// MaxStripes bounds a picture; more could not be told apart.
	MaxStripes = 20_000
)

// Shades of successive numbers: dark, light, middle, hatched by their outline.
var shades = []string{"#222222", "#c8c8c8", "#777777", "#f2f2f2"}

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
		width := max(end-from, 0.6)
		shade := s.Number % len(shades)
		drawn := width
		if b.Apart && width > 2*gap {
			drawn -= gap
		}
		if s.Low {
			c.rect(from, y+bandHeight-3-lowHeight, drawn, lowHeight, `fill="`+shades[shade]+`" stroke="black" stroke-width="0.4"`)
			continue
		}
		c.rect(from, y+3, drawn, bandHeight-6, `fill="`+shades[shade]+`" stroke="black" stroke-width="0.5"`)
		if label := fmt.Sprint(s.Number); width > 12+7*float64(len(label)) {
			ink := "black"
			if shade == 0 || shade == 2 {
				ink = "white"
			}
			c.text(from+width/2, y+bandHeight/2+4, "middle", `font-size="11" fill="`+ink+`"`, label)
		}
	}
}
