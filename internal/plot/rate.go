package plot

import (
	"errors"
	"fmt"

	"github.com/trapeze-nic/trapeze/internal/dmalog"
)

// ErrTooMany: a picture would hold more than can be told apart.
var ErrTooMany = errors.New("too many transfers")

// maxWindows bounds a picture of rates: two windows for each unit of its width.
const maxWindows = 1800

// Rate is a picture of each engine's effective bandwidth over time: one band for
// each engine, for each direction if there are two, and in it what the engine moved in
// windows of equal length. A transfer counts evenly over its duration.
type Rate struct {
	Title   string
	Note    string
	Records []dmalog.Record
	Window  int64 // picoseconds
}

// SVG draws the picture.
func (r Rate) SVG() ([]byte, error) {
	var end int64
	for _, l := range r.Records {
		end = max(end, l.End)
	}
	switch {
	case end == 0 || r.Window <= 0:
		return nil, fmt.Errorf("%s: %w", r.Title, ErrEmpty)
	case end/r.Window >= maxWindows:
		return nil, fmt.Errorf("%s: %d windows, at most %d can be drawn: make them longer: %w", r.Title, end/r.Window+1, maxWindows, ErrTooMany)
	}
	bands := bandsOf(r.Records)
	rates := make([][]float64, len(bands))
	greatest := 0.0
	for i, b := range bands {
		rates[i] = r.moved(b, end)
		for k := range rates[i] {
			rates[i][k] /= dmalog.Microseconds(r.Window)
			greatest = max(greatest, rates[i][k])
		}
	}
	const height = 92.0
	axis := top + float64(len(bands))*height
	c := newCanvas(flowWidth, axis+50, r.Title)
	c.text(flowLeft, 24, "start", `font-size="15" font-weight="bold"`, r.Title)
	c.text(flowLeft, 44, "start", `fill="#444"`, r.Note)
	x := newScale(Axis{Label: "time, us", Exact: true}, 0, dmalog.Microseconds(end), flowLeft, flowWidth-flowRight)
	for i, b := range bands {
		base := top + float64(i+1)*height - 12
		y := newScale(Axis{Zero: true}, 0, greatest, base, base-height+22)
		r.band(c, b.name(bands, directions), rates[i], x, y)
	}
	for _, v := range x.ticks() {
		c.line(x.at(v), axis-12, x.at(v), axis-7, `stroke="black"`)
		c.text(x.at(v), axis+8, "middle", "", x.format(v))
	}
	c.text((flowLeft+flowWidth-flowRight)/2.0, axis+30, "middle", "", x.Label)
	mid := (top + axis) / 2
	c.text(16, mid, "middle", `transform="rotate(-90 16 `+num(mid)+`)"`, "effective bandwidth, MB/s")
	return c.bytes(), nil
}

// band draws one engine's rates as an area.
func (r Rate) band(c *canvas, name string, rates []float64, x, y scale) {
	points := []Point{{x.from, y.from}}
	for i, v := range rates {
		from := x.at(dmalog.Microseconds(int64(i) * r.Window))
		to := min(x.at(dmalog.Microseconds(int64(i+1)*r.Window)), x.to)
		points = append(points, Point{from, y.at(v)}, Point{to, y.at(v)})
	}
	points = append(points, Point{x.to, y.from})
	c.area(points, `fill="#d0d0d0" stroke="black" stroke-width="1"`)
	for _, v := range []float64{0, y.high / 2, y.high} {
		c.line(x.from, y.at(v), x.to, y.at(v), `stroke="#999" stroke-width="0.6" stroke-dasharray="2 3"`)
		c.text(x.from-6, y.at(v)+4, "end", `font-size="10"`, y.format(v))
	}
	c.line(x.from, y.from, x.to, y.from, `stroke="black"`)
	c.text(x.from+6, y.to+2, "start", `font-weight="bold"`, name)
}

// moved returns the bytes that an engine moved in each window.
func (r Rate) moved(b band, end int64) []float64 {
	moved := make([]float64, end/r.Window+1)
	for _, l := range r.Records {
		if l.Flow != b.flow || l.Engine != b.engine || l.End <= l.Start {
			continue
		}
		for i := l.Start / r.Window; i <= l.End/r.Window; i++ {
			from, to := max(l.Start, i*r.Window), min(l.End, (i+1)*r.Window)
			moved[i] += float64(l.Bytes) * float64(max(to-from, 0)) / float64(l.End-l.Start)
		}
	}
	return moved
}
