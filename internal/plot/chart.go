package plot

import (
	"errors"
	"fmt"
	"math"
	"strings"
)

// ErrEmpty: there is nothing to draw.
var ErrEmpty = errors.New("nothing to draw")

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

// Styles of the curves: dashes and marks tell them apart without colours.
var styles = []struct{ stroke, dash, mark string }{
	{"#000000", "", "circle"},
	{"#0b4f9e", "7 3", "square"},
	{"#a33b00", "2 3", "triangle"},
	{"#1b6e3c", "9 3 2 3", "diamond"},
	{"#6a1b7a", "4 2", "cross"},
	{"#555555", "1 2", "plus"},
}

var behindDashes = []string{"", "10 4"}

const (
	chartWidth, chartHeight = 760, 440
	left, top               = 70, 62
	bottom                  = 60
	legendWidth             = 190
)

// SVG draws the chart.
func (ch Chart) SVG() ([]byte, error) {
	c := newCanvas(chartWidth, chartHeight, ch.Title)
	if err := ch.drawAll(c); err != nil {
		return nil, err
	}
	return c.bytes(), nil
}

// Stack draws charts below each other in one picture.
func Stack(title string, charts ...Chart) ([]byte, error) {
	c := newCanvas(chartWidth, float64(chartHeight*len(charts)), title)
	for i, ch := range charts {
		fmt.Fprintf(&c.b, `<g transform="translate(0 %d)">`+"\n", i*chartHeight)
		if err := ch.drawAll(c); err != nil {
			return nil, err
		}
		c.b.WriteString("</g>\n")
	}
	if len(charts) == 0 {
		return nil, fmt.Errorf("%s: %w", title, ErrEmpty)
	}
	return c.bytes(), nil
}

// drawAll draws the chart on a canvas.
func (ch Chart) drawAll(c *canvas) error {
	low, high, ok := ch.bounds()
	if !ok {
		return fmt.Errorf("%s: %w", ch.Title, ErrEmpty)
	}
	x := newScale(ch.X, low.X, high.X, left, chartWidth-legendWidth)
	y := newScale(ch.Y, low.Y, high.Y, chartHeight-bottom, top)
	c.text(left, 24, "start", `font-size="15" font-weight="bold"`, ch.Title)
	c.text(left, 44, "start", `fill="#444"`, ch.Note)
	c.frame(x, y)
	k, behind := 0, 0
	ly := float64(top + 14)
	for i, s := range ch.Series {
		l := look{stroke: "#aaaaaa", width: 4}
		if s.Behind {
			l.dash = behindDashes[behind%len(behindDashes)]
			behind++
		} else {
			style := styles[k%len(styles)]
			l = look{stroke: style.stroke, dash: style.dash, mark: style.mark, width: 1.6}
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
		ch.draw(c, s, x, y, l)
		ly = ch.legend(c, s, l, ly)
	}
	return nil
}

// look says how a curve is drawn.
type look struct {
	stroke, dash, mark string
	width              float64 // of the line, in units
	pale               bool
}

// style is the look as attributes of a line.
func (l look) style() string {
	s := strokeStyle(l.stroke, l.dash, l.width)
	if l.pale {
		s += ` stroke-opacity="0.35"`
	}
	return s
}

// draw draws a mark; a pale curve's is larger than those that lie over it.
func (l look) draw(c *canvas, x, y float64) {
	if !l.pale {
		c.mark(l.mark, x, y, l.stroke)
		return
	}
	fmt.Fprintf(&c.b, `<g transform="translate(%s %s) scale(1.6)">`+"\n", num(x), num(y))
	c.mark(l.mark, 0, 0, l.stroke)
	c.b.WriteString("</g>\n")
}

// legend draws the entry of a curve at height y, and returns that of the next one.
func (ch Chart) legend(c *canvas, s Series, l look, y float64) float64 {
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
			v, ok := over.at(p.X)
			hidden = hidden && ok && math.Abs(y.at(v)-y.at(p.Y)) <= alike
		}
		if hidden {
			return over.Name
		}
	}
	return ""
}

// at returns the height of a curve where it has a point.
func (s *Series) at(x float64) (y float64, ok bool) {
	for _, p := range s.Points {
		if p.X == x {
			return p.Y, true
		}
	}
	return 0, false
}

func (ch Chart) draw(c *canvas, s Series, x, y scale, l look) {
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

func strokeStyle(stroke, dash string, width float64) string {
	s := `stroke="` + stroke + `" stroke-width="` + num(width) + `"`
	if dash != "" {
		s += ` stroke-dasharray="` + dash + `"`
	}
	return s
}

func (c *canvas) mark(kind string, x, y float64, stroke string) {
	style := `fill="white" stroke="` + stroke + `" stroke-width="1.3"`
	switch kind {
	case "circle":
		fmt.Fprintf(&c.b, `<circle cx="%s" cy="%s" r="3.5" %s/>`+"\n", num(x), num(y), style)
	case "square":
		c.rect(x-3.2, y-3.2, 6.4, 6.4, style)
	case "triangle":
		fmt.Fprintf(&c.b, `<path d="M%s %sl4 7h-8z" %s/>`+"\n", num(x), num(y-4.5), style)
	case "diamond":
		fmt.Fprintf(&c.b, `<path d="M%s %sl4.5 4.5l-4.5 4.5l-4.5 -4.5z" %s/>`+"\n", num(x), num(y-4.5), style)
	case "cross":
		fmt.Fprintf(&c.b, `<path d="M%s %sl7 7m0 -7l-7 7" %s/>`+"\n", num(x-3.5), num(y-3.5), style)
	case "plus":
		fmt.Fprintf(&c.b, `<path d="M%s %sh8m-4 -4v8" %s/>`+"\n", num(x-4), num(y), style)
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
