package plot

import (
	"fmt"
	"math"
	"slices"

	"github.com/trapeze-nic/trapeze/internal/dmalog"
)

// Bands is a picture of activity over time: a band for each actor, such as an engine, and a
// stripe for each of its transfers.
type Bands struct {
	Title    string
	Note     string
	Legend   string // below the axis: what a stripe is
	Names    []string
	Headings map[int]string // over bands, by their numbers
	Narrow   bool           // the bands are low, and stripes have no numbers
	Stripes  []Stripe
	From     int64 // picoseconds; stripes outside From to To are left out
	To       int64 // 0 = to the last stripe

	rates [][]float64 // instead of stripes: a figure of each band for each window of time
	each  int64       // length of the windows
}

// Stripe is one transfer, or what else takes time.
type Stripe struct {
	Band   int // 0 to the number of names, less one
	Number int // is written on it where there is room, and decides its colour
	Start  int64
	End    int64
	Low    bool // drawn grey, at a third of the height, without its number
}

const (
	flowWidth = 1000
	flowLeft  = 118
	flowRight = 24
	lowHeight = 13
	// MaxStripes bounds a picture; more could not be told apart.
	MaxStripes = 20_000
)

// hues of successive numbers are dark and light in turns, so that they differ without colours, too.
var hues = []string{"#1b4f8a", "#e69f00", "#8c3b6b", "#3f9b6f"}

// height returns the heights of a band and of the gap below it, and the distance of stripes from its edge.
func (b *Bands) height() (height, gap, inset float64) {
	switch {
	case b.rates != nil:
		return 80, 12, 0
	case b.Narrow:
		return 11, 1, 0
	}
	return 44, 16, 3
}

// at is the upper edge of band number i.
func (b *Bands) at(i int) float64 {
	height, gap, _ := b.height()
	y := top + float64(i)*(height+gap)
	for k := range b.Headings {
		if k <= i {
			y += 24
		}
	}
	return y
}

// SVG draws the picture.
func (b Bands) SVG() ([]byte, error) { return Stack(b.Title, b) }

func (b Bands) draw(c *canvas) error {
	shown, err := b.shown()
	if err != nil {
		return err
	}
	x := newScale(Axis{Exact: true}, dmalog.Microseconds(b.From), dmalog.Microseconds(b.To), flowLeft, flowWidth-flowRight)
	axis := b.at(len(b.Names))
	c.takes(flowWidth, axis+66)
	c.heading(flowLeft, b.Title, b.Note)
	height, _, _ := b.height()
	for i, name := range b.Names {
		c.rect(x.from, b.at(i), x.to-x.from, height, `fill="#fbfbfb" stroke="#bbb" stroke-width="0.7"`)
		c.text(x.from-8, b.at(i)+height/2+4, "end", "", name)
		c.text(x.from, b.at(i)-6, "start", `font-weight="bold"`, b.Headings[i])
	}
	for _, v := range x.ticks() {
		c.line(x.at(v), top, x.at(v), axis+5, `stroke="#ccc" stroke-width="0.7" stroke-dasharray="2 3"`)
		c.text(x.at(v), axis+18, "middle", "", x.format(v))
	}
	c.line(x.from, axis, x.to, axis, `stroke="black"`)
	c.text((x.from+x.to)/2, axis+38, "middle", "", "time, us")
	c.text(x.from, axis+58, "start", `fill="#444" font-size="11"`, b.Legend)
	for _, s := range shown {
		b.stripe(c, x, s)
	}
	b.areas(c, x)
	return nil
}

// shown returns the stripes between From and To, and sets To if it is 0.
func (b *Bands) shown() (shown []Stripe, err error) {
	end := int64(math.MaxInt64)
	if b.To > 0 {
		end = b.To
	}
	for _, s := range b.Stripes {
		if s.End > b.From && s.Start < end {
			shown = append(shown, s)
			b.To = min(max(b.To, s.End), end)
		}
	}
	switch {
	case len(shown) == 0 && b.rates == nil || b.To <= b.From:
		return nil, fmt.Errorf("%s: %w", b.Title, ErrEmpty)
	case len(shown) > MaxStripes:
		return nil, fmt.Errorf("%s: %d transfers, at most %d can be drawn: give a shorter span of time: %w", b.Title, len(shown), MaxStripes, ErrTooMany)
	}
	return shown, nil
}

// stripe draws a stripe as far as the axis goes. It has no outline, which would hide a narrow one.
func (b *Bands) stripe(c *canvas, x scale, s Stripe) {
	height, _, inset := b.height()
	y, height, hue := b.at(s.Band)+inset, height-2*inset, hues[s.Number%len(hues)]
	from, end := max(x.at(dmalog.Microseconds(s.Start)), x.from), min(x.at(dmalog.Microseconds(s.End)), x.to)
	if s.Low {
		y, height, hue = y+height-lowHeight, lowHeight, "#888888"
	}
	width := max(end-from, 1.2)
	if width > 2 {
		width-- // stripes that touch can be counted
	}
	c.rect(from, y, width, height, `fill="`+hue+`"`)
	if label := fmt.Sprint(s.Number); !s.Low && !b.Narrow && end-from > 12+7*float64(len(label)) {
		ink := [2]string{"white", "black"}[s.Number%2]
		c.text((from+end)/2, y+height/2+4, "middle", `font-size="11" fill="`+ink+`"`, label)
	}
}

func (b *Bands) areas(c *canvas, x scale) {
	greatest := 0.0
	for _, rates := range b.rates {
		greatest = max(greatest, slices.Max(rates))
	}
	for i, rates := range b.rates {
		height, _, _ := b.height()
		y := newScale(Axis{Zero: true}, 0, greatest, b.at(i)+height, b.at(i)+14)
		points := []Point{{x.from, y.from}}
		for k, v := range rates {
			from, to := x.at(dmalog.Microseconds(int64(k)*b.each)), x.at(dmalog.Microseconds(int64(k+1)*b.each))
			points = append(points, Point{from, y.at(v)}, Point{min(to, x.to), y.at(v)})
		}
		c.area(append(points, Point{x.to, y.from}), `fill="#d0d0d0" stroke="black" stroke-width="1"`)
		for _, v := range []float64{y.high / 2, y.high} {
			c.line(x.from, y.at(v), x.to, y.at(v), `stroke="#999" stroke-width="0.6" stroke-dasharray="2 3"`)
			c.text(x.to-4, y.at(v)-3, "end", `font-size="10"`, y.format(v))
		}
	}
}
