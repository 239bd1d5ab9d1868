package plot

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/trapeze-nic/trapeze/internal/dmalog"
)

// Flow is a packet flow graph: a band for each engine that moved something, at most four, and
// a stripe for each transfer. The colour changes from packet to packet. A run in both
// directions has eight bands at most. It is drawn from records of virtual time and from the log of a live
// device alike.
type Flow struct {
	Title   string
	Note    string
	Records []dmalog.Record
	Control []dmalog.Record // control messages ahead of payloads, drawn low
	From    int64           // picoseconds; transfers outside From to To are left out
	To      int64           // 0 = to the last transfer
	// Directions name the flows of a run in both directions; empty: there and back.
	Directions [2]string
}

// band is a row of a picture: one engine in one direction.
type band struct {
	flow   int
	engine dmalog.Engine
}

// bandsOf returns the rows for records, all engines of one direction first. Engines that
// moved nothing have none.
func bandsOf(records []dmalog.Record) (bands []band) {
	for _, r := range records {
		if b := (band{r.Flow, r.Engine}); r.Engine < dmalog.Engines && !slices.Contains(bands, b) {
			bands = append(bands, b)
		}
	}
	slices.SortFunc(bands, func(a, b band) int {
		return cmp.Or(cmp.Compare(a.flow, b.flow), cmp.Compare(a.engine, b.engine))
	})
	return bands
}

// directions name the flows of a run in both directions.
var directions = [2]string{"there", "back"}

// name is the engine's, with the direction if there are two.
func (b band) name(bands []band, directions [2]string) string {
	if bands[len(bands)-1].flow == 0 {
		return b.engine.String()
	}
	return b.engine.String() + ", " + directions[b.flow%len(directions)]
}

// SVG draws the graph.
func (f Flow) SVG() ([]byte, error) {
	bands := bandsOf(f.Records)
	if f.Directions == ([2]string{}) {
		f.Directions = directions
	}
	b := Bands{Title: f.Title, Note: f.Note, Legend: "One stripe is one transfer; the colour changes from packet to packet.", From: f.From, To: f.To}
	for _, one := range bands {
		b.Names = append(b.Names, one.name(bands, f.Directions))
	}
	for low, records := range [][]dmalog.Record{f.Records, f.Control} {
		for _, r := range records {
			if at := slices.Index(bands, band{r.Flow, r.Engine}); at >= 0 {
				b.Stripes = append(b.Stripes, Stripe{Band: at, Number: r.Packet, Start: r.Start, End: r.End, Low: low == 1})
			}
		}
	}
	if len(f.Control) > 0 {
		b.Legend += " Low grey ones are control messages."
	}
	return b.SVG()
}

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
