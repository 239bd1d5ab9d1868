package plot

import (
	"fmt"
	"math"
	"strconv"
)

// Bar is one bar: a name below it, and from the axis upwards its parts.
type Bar struct {
	Name  string
	Parts []float64
}

// Group is bars that stand together, over a common name.
type Group struct {
	Name string
	Bars []Bar
}

// Bars is a picture of bars that are made of parts, with the sum above each.
type Bars struct {
	Title  string
	Note   string // one line under the title
	Y      Axis
	X      string   // what the groups' names are
	Parts  []string // names of the parts, the lowest first; at most as many as there are fills
	Groups []Group
}

// fills tell parts apart without colours: shades, and hatched in four ways.
var fills = []string{`fill="#f2f2f2"`, `fill="#7a7a7a"`, `fill="url(#falling)"`, `fill="url(#rising)"`, `fill="#262626"`, `fill="url(#upright)"`, `fill="url(#level)"`}

// hatches are the patterns of the fills.
const hatches = `<defs>
<pattern id="falling" width="6" height="6" patternUnits="userSpaceOnUse"><rect width="6" height="6" fill="white"/><path d="M0 0l6 6" stroke="black" stroke-width="1"/></pattern>
<pattern id="rising" width="6" height="6" patternUnits="userSpaceOnUse"><rect width="6" height="6" fill="white"/><path d="M0 6l6 -6" stroke="black" stroke-width="1"/></pattern>
<pattern id="upright" width="5" height="5" patternUnits="userSpaceOnUse"><rect width="5" height="5" fill="white"/><path d="M2 0v5" stroke="black" stroke-width="1"/></pattern>
<pattern id="level" width="5" height="5" patternUnits="userSpaceOnUse"><rect width="5" height="5" fill="white"/><path d="M0 2h5" stroke="black" stroke-width="1"/></pattern>
</defs>
`

// barNames is the room for the bars' names, which are written at a slant.
const barNames = 62

// SVG draws the picture.
func (b Bars) SVG() ([]byte, error) { return StackBars(b.Title, b) }

// StackBars draws pictures of bars below each other in one.
func StackBars(title string, pictures ...Bars) ([]byte, error) {
	const height = chartHeight + barNames
	c := newCanvas(chartWidth, float64(height*len(pictures)), title)
	c.b.WriteString(hatches)
	for i, b := range pictures {
		fmt.Fprintf(&c.b, `<g transform="translate(0 %d)">`+"\n", i*height)
		if err := b.draw(c); err != nil {
			return nil, err
		}
		c.b.WriteString("</g>\n")
	}
	if len(pictures) == 0 {
		return nil, fmt.Errorf("%s: %w", title, ErrEmpty)
	}
	return c.bytes(), nil
}

// draw draws the picture on a canvas.
func (b Bars) draw(c *canvas) error {
	highest, n, ok := b.measure()
	if !ok {
		return fmt.Errorf("%s: %w", b.Title, ErrEmpty)
	}
	b.Y.Zero = true
	y := newScale(b.Y, 0, highest, chartHeight-bottom, top)
	right := float64(chartWidth - legendWidth)
	c.text(left, 24, "start", `font-size="15" font-weight="bold"`, b.Title)
	c.text(left, 44, "start", `fill="#444"`, b.Note)
	c.frame(scale{from: left, to: right, Axis: Axis{}}, y)
	// Between two groups there is the room of a bar.
	width := (right - left) / float64(n+len(b.Groups))
	x := left + width/2
	for _, g := range b.Groups {
		begin := x
		for _, bar := range g.Bars {
			b.bar(c, bar, x, width, y)
			x += width
		}
		c.text((begin+x)/2, y.from+barNames+10, "middle", `font-weight="bold"`, g.Name)
		x += width
	}
	c.text((left+right)/2, y.from+barNames+30, "middle", "", b.X)
	for i := range b.Parts {
		// The legend has the parts in the order in which they stand.
		part, ly := len(b.Parts)-1-i, float64(top+6+20*i)
		c.rect(right+16, ly, 24, 12, fills[part]+` stroke="black" stroke-width="0.7"`)
		c.text(right+48, ly+10, "start", "", b.Parts[part])
	}
	return nil
}

// bar draws one bar at x, its parts from the axis upwards.
func (b Bars) bar(c *canvas, bar Bar, x, width float64, y scale) {
	sum, at := 0.0, y.from
	for i, v := range bar.Parts {
		sum += v
		above := y.at(sum)
		c.rect(x+width*0.08, above, width*0.84, at-above, fills[i]+` stroke="black" stroke-width="0.7"`)
		at = above
	}
	mid := x + width/2
	c.text(mid, at-4, "middle", `font-size="9"`, threeDigits(sum))
	tx, ty := num(mid+3), num(y.from+10)
	c.text(mid+3, y.from+10, "end", `font-size="10" transform="rotate(-45 `+tx+` `+ty+`)"`, bar.Name)
}

// measure returns the highest bar and how many there are; ok is false if there are none,
// or parts that cannot be drawn.
func (b Bars) measure() (highest float64, n int, ok bool) {
	for _, g := range b.Groups {
		for _, bar := range g.Bars {
			sum := 0.0
			for _, v := range bar.Parts {
				if !(v >= 0) || math.IsInf(v, 0) {
					return 0, 0, false
				}
				sum += v
			}
			if len(bar.Parts) != len(b.Parts) {
				return 0, 0, false
			}
			highest, n = max(highest, sum), n+1
		}
	}
	return highest, n, n > 0 && highest > 0 && len(b.Parts) <= len(fills)
}

// threeDigits writes a number of at least 0 with three digits or more.
func threeDigits(v float64) string {
	decimals := 0
	for scale := 100.0; decimals < 6 && v > 0 && v < scale; scale /= 10 {
		decimals++
	}
	return strconv.FormatFloat(v, 'f', decimals, 64)
}
