// Package plot draws the pictures of the papers' evaluation as SVG: packet flow
// graphs, latency and bandwidth curves. They are readable in black and white:
// curves differ by dashes and marks, packets by brightness.
package plot

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

type canvas struct {
	b             bytes.Buffer
	width, height float64 // of what is drawn
}

// drawing is a picture that can stand in another one. draw adds to the size of the canvas what it takes.
type drawing interface{ draw(c *canvas) error }

var (
	ErrEmpty   = errors.New("nothing to draw")
	ErrTooMany = errors.New("too many transfers") // more than can be told apart
)

const fontFamily = "DejaVu Sans, Helvetica, Arial, sans-serif"

// Stack draws pictures below each other in one.
func Stack[D drawing](title string, pictures ...D) ([]byte, error) {
	if len(pictures) == 0 {
		return nil, fmt.Errorf("%s: %w", title, ErrEmpty)
	}
	var c canvas
	for _, p := range pictures {
		fmt.Fprintf(&c.b, `<g transform="translate(0 %s)">`+"\n", num(c.height))
		if err := p.draw(&c); err != nil {
			return nil, err
		}
		c.b.WriteString("</g>\n")
	}
	width, height := num(c.width), num(c.height)
	return fmt.Appendf(nil, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %s %s" width="%s" height="%s" font-family="%s" font-size="12">
<title>%s</title>
<rect width="%s" height="%s" fill="white"/>
%s</svg>
`, width, height, width, height, fontFamily, escape(title), width, height, c.b.Bytes()), nil
}

// takes adds to the size of the canvas.
func (c *canvas) takes(width, height float64) {
	c.width, c.height = max(c.width, width), c.height+height
}

// num writes a coordinate with at most two decimals, the same on every machine.
func num(v float64) string {
	s := strconv.FormatFloat(math.Round(v*100)/100, 'f', -1, 64)
	if s == "-0" {
		return "0"
	}
	return s
}

var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;")

func escape(s string) string { return escaper.Replace(s) }

func (c *canvas) line(x1, y1, x2, y2 float64, style string) {
	fmt.Fprintf(&c.b, `<line x1="%s" y1="%s" x2="%s" y2="%s" %s/>`+"\n", num(x1), num(y1), num(x2), num(y2), style)
}

func (c *canvas) rect(x, y, w, h float64, style string) {
	fmt.Fprintf(&c.b, `<rect x="%s" y="%s" width="%s" height="%s" %s/>`+"\n", num(x), num(y), num(w), num(h), style)
}

// text writes s with its anchor (start, middle, end) at x, y.
func (c *canvas) text(x, y float64, anchor, extra, s string) {
	if s == "" {
		return
	}
	if extra != "" {
		extra = " " + extra
	}
	fmt.Fprintf(&c.b, `<text x="%s" y="%s" text-anchor="%s"%s>%s</text>`+"\n", num(x), num(y), anchor, extra, escape(s))
}

func (c *canvas) heading(x float64, title, note string) {
	c.text(x, 24, "start", `font-size="15" font-weight="bold"`, title)
	c.text(x, 44, "start", `fill="#444"`, note)
}

func (c *canvas) path(points []Point, style string) {
	fmt.Fprintf(&c.b, `<polyline fill="none" points="%s" %s/>`+"\n", joined(points), style)
}

func (c *canvas) area(points []Point, style string) {
	fmt.Fprintf(&c.b, `<polygon points="%s" %s/>`+"\n", joined(points), style)
}

func joined(points []Point) string {
	text := make([]string, len(points))
	for i, p := range points {
		text[i] = num(p.X) + "," + num(p.Y)
	}
	return strings.Join(text, " ")
}
