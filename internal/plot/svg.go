// Package plot draws the pictures of the papers' evaluation as SVG: packet flow
// graphs, latency and bandwidth curves. They are readable in black and white:
// curves differ by dashes and marks, packets by brightness.
package plot

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// canvas collects the elements of a picture.
type canvas struct {
	b             bytes.Buffer
	width, height float64
}

const fontFamily = "DejaVu Sans, Helvetica, Arial, sans-serif"

func newCanvas(width, height float64, title string) *canvas {
	c := &canvas{width: width, height: height}
	fmt.Fprintf(&c.b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %s %s" width="%s" height="%s" font-family="%s" font-size="12">`+"\n",
		num(width), num(height), num(width), num(height), fontFamily)
	fmt.Fprintf(&c.b, "<title>%s</title>\n", escape(title))
	fmt.Fprintf(&c.b, `<rect width="%s" height="%s" fill="white"/>`+"\n", num(width), num(height))
	return c
}

func (c *canvas) bytes() []byte {
	c.b.WriteString("</svg>\n")
	return c.b.Bytes()
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
	if extra != "" {
		extra = " " + extra
	}
	fmt.Fprintf(&c.b, `<text x="%s" y="%s" text-anchor="%s"%s>%s</text>`+"\n", num(x), num(y), anchor, extra, escape(s))
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
