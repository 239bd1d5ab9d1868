package plot

import (
	"fmt"

	"github.com/trapeze-nic/trapeze/internal/dmalog"
)

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
	b := Bands{Title: r.Title, Note: r.Note, Legend: "The height of an area is the effective bandwidth in MB/s.", each: r.Window}
	for _, l := range r.Records {
		b.To = max(b.To, l.End)
	}
	switch {
	case b.To == 0 || r.Window <= 0:
		return nil, fmt.Errorf("%s: %w", r.Title, ErrEmpty)
	case b.To/r.Window >= maxWindows:
		return nil, fmt.Errorf("%s: %d windows, at most %d can be drawn: make them longer: %w", r.Title, b.To/r.Window+1, maxWindows, ErrTooMany)
	}
	bands := bandsOf(r.Records)
	for _, one := range bands {
		b.Names = append(b.Names, one.name(bands, directions))
		b.rates = append(b.rates, r.moved(one, b.To))
	}
	return b.SVG()
}

// moved returns the rate of an engine in each window, in MB/s.
func (r Rate) moved(b band, end int64) []float64 {
	moved := make([]float64, end/r.Window+1)
	for _, l := range r.Records {
		if l.Flow != b.flow || l.Engine != b.engine || l.End <= l.Start {
			continue
		}
		for i := l.Start / r.Window; i <= l.End/r.Window; i++ {
			from, to := max(l.Start, i*r.Window), min(l.End, (i+1)*r.Window)
			moved[i] += float64(l.Bytes) * float64(max(to-from, 0)) / float64(l.End-l.Start) / dmalog.Microseconds(r.Window)
		}
	}
	return moved
}
