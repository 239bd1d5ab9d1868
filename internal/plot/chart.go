package plot

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Point of a curve.
type Point struct{ X, Y float64 }

// Series is a curve with its name.
type Series struct {
	Name   string
	Says   string  // a line below the name in the legend; may be empty
	Points []Point // none: left out, and no other curve looks like it
	Behind bool    // drawn as a grey line behind the others, such as what the bus could carry
}

// Chart is a picture of curves over one pair of axes.
type Chart struct {
	Title  string
	Note   string // one line under the title: conditions of the measurement
	X, Y   Axis
	Series []Series
}

// looks of the curves: dashes and marks tell them apart without colours. Marks are circle, square, triangle, diamond,
// cross and plus, each an outline from the middle on.
var looks = []look{
	{"#000000", "", "m-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0", 1.6, false},
	{"#0b4f9e", "7 3", "m-3.2 -3.2h6.4v6.4h-6.4z", 1.6, false},
	{"#a33b00", "2 3", "m0 -4.5l4 7h-8z", 1.6, false},
	{"#1b6e3c", "9 3 2 3", "m0 -4.5l4.5 4.5l-4.5 4.5l-4.5 -4.5z", 1.6, false},
	{"#6a1b7a", "4 2", "m-3.5 -3.5l7 7m0 -7l-7 7", 1.6, false},
	{"#555555", "1 2", "m-4 0h8m-4 -4v8", 1.6, false},
}

var behindDashes = []string{"", "10 4"}

const (
	chartWidth, chartHeight = 760, 440
	left, top               = 70, 62
	bottom                  = 60
	legendWidth             = 190
)

// SVG draws the chart.
func (ch Chart) SVG() ([]byte, error) { return Stack(ch.Title, ch) }

func (ch Chart) draw(c *canvas) error {
	low, high, ok := ch.bounds()
	if !ok {
		return fmt.Errorf("%s: %w", ch.Title, ErrEmpty)
	}
	x := newScale(ch.X, low.X, high.X, left, chartWidth-legendWidth)
	y := newScale(ch.Y, low.Y, high.Y, chartHeight-bottom, top)
	c.takes(chartWidth, chartHeight)
	c.heading(left, ch.Title, ch.Note)
	c.frame(x, y)
	k, behind := 0, 0
	ly := float64(top + 14)
	for i, s := range ch.Series {
		l := look{stroke: "#aaaaaa", width: 4}
		if s.Behind {
			l.dash = behindDashes[behind%len(behindDashes)]
			behind++
		} else {
			l = looks[k%len(looks)]
			if over := ch.cover(i, x, y); over != "" {
				// Broad and pale, it shows on both sides of what lies over it.
				l.dash, l.width, l.pale = "", 7, true
				s.Says = strings.Trim(s.Says+"; the same as "+over, "; ")
			}
			k++
		}
		if len(s.Points) == 0 {
			continue
		}
		s.draw(c, x, y, l)
		ly = s.legend(c, l, ly)
	}
	return nil
}

// look says how a curve is drawn.
type look struct {
	stroke, dash, mark string
	width              float64 // of the line, in units
	pale               bool
}

func (l look) style() string {
	s := `stroke="` + l.stroke + `" stroke-width="` + num(l.width) + `"`
	if l.dash != "" {
		s += ` stroke-dasharray="` + l.dash + `"`
	}
	if l.pale {
		s += ` stroke-opacity="0.35"`
	}
	return s
}

// draw draws a mark, if there is one; a pale curve's is larger than those that lie over it.
func (l look) draw(c *canvas, x, y float64) {
	scale := "1"
	if l.pale {
		scale = "1.6"
	}
	if l.mark != "" {
		fmt.Fprintf(&c.b, `<path d="M0 0%s" transform="translate(%s %s) scale(%s)" fill="white" stroke="%s" stroke-width="1.3"/>`+"\n",
			l.mark, num(x), num(y), scale, l.stroke)
	}
}

// legend draws the entry of a curve at height y, and returns that of the next one.
func (s *Series) legend(c *canvas, l look, y float64) float64 {
	x := float64(chartWidth - legendWidth + 16)
	c.path([]Point{{x, y}, {x + 30, y}}, l.style())
	l.draw(c, x+15, y)
	c.text(x+38, y+4, "start", "", s.Name)
	if s.Says == "" {
		return y + 20
	}
	c.text(x+38, y+18, "start", `fill="#444" font-size="10"`, s.Says)
	return y + 34
}

// alike is the distance in units at which two curves cannot be told apart.
const alike = 2.5

// cover returns the name of a curve that is drawn later and hides curve i. That one comes
// no further from it than its own width anywhere; empty if there is none.
func (ch Chart) cover(i int, x, y scale) string {
	for _, over := range ch.Series[i+1:] {
		hidden := len(ch.Series[i].Points) > 0 && !over.Behind
		for _, p := range ch.Series[i].Points {
			k := slices.IndexFunc(over.Points, func(o Point) bool { return o.X == p.X })
			hidden = hidden && k >= 0 && math.Abs(y.at(over.Points[k].Y)-y.at(p.Y)) <= alike
		}
		if hidden {
			return over.Name
		}
	}
	return ""
}

func (s *Series) draw(c *canvas, x, y scale, l look) {
	points := make([]Point, len(s.Points))
	for i, p := range s.Points {
		points[i] = Point{x.at(p.X), y.at(p.Y)}
	}
	c.path(points, l.style())
	// Marks at most every 24 units, so that dense curves stay legible.
	last := math.Inf(-1)
	for _, p := range points {
		if p.X-last >= 24 {
			l.draw(c, p.X, p.Y)
			last = p.X
		}
	}
}

// bounds returns the least and greatest values; ok is false without two points.
func (ch Chart) bounds() (low, high Point, ok bool) {
	n := 0
	low, high = Point{math.Inf(1), math.Inf(1)}, Point{math.Inf(-1), math.Inf(-1)}
	for _, s := range ch.Series {
		for _, p := range s.Points {
			if math.IsNaN(p.X) || math.IsNaN(p.Y) || math.IsInf(p.X, 0) || math.IsInf(p.Y, 0) {
				return low, high, false
			}
			low = Point{min(low.X, p.X), min(low.Y, p.Y)}
			high = Point{max(high.X, p.X), max(high.Y, p.Y)}
			n++
		}
	}
	return low, high, n >= 2
}
