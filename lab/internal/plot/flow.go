package plot

import "github.com/trapeze-nic/trapeze/pipeline/dmalog"

// Flow is a packet flow graph: four bands, one for each engine, and a stripe for
// each transfer. Shades alternate from packet to packet. A run in both directions has
// eight bands. It is drawn from records of virtual time and from the log of a live
// device alike.
type Flow struct {
	Title   string
	Note    string
	Records []dmalog.Record
	From    int64 // picoseconds; transfers outside From to To are left out
	To      int64 // 0 = to the last transfer
	// Directions name the flows of a run in both directions; empty: there and back.
	Directions [2]string
}

// band is a row of a picture: one engine in one direction.
type band struct {
	flow   int
	engine dmalog.Engine
}

// bandsOf returns the rows for records, all engines of one direction first.
func bandsOf(records []dmalog.Record) (bands []band) {
	flows := 0
	for _, r := range records {
		flows = max(flows, r.Flow+1)
	}
	for flow := range flows {
		for e := range dmalog.Engines {
			bands = append(bands, band{flow, e})
		}
	}
	return bands
}

// directions name the flows of a run in both directions.
var directions = [2]string{"there", "back"}

// name is the engine's, with the direction if there are two.
func (b band) name(bands []band, directions [2]string) string {
	if len(bands) <= int(dmalog.Engines) {
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
	b := Bands{Title: f.Title, Note: f.Note, Legend: "One stripe is one transfer; the shade changes from packet to packet.", From: f.From, To: f.To}
	for _, one := range bands {
		b.Names = append(b.Names, one.name(bands, f.Directions))
	}
	for _, r := range f.Records {
		if r.Engine < dmalog.Engines {
			b.Stripes = append(b.Stripes, Stripe{Band: r.Flow*int(dmalog.Engines) + int(r.Engine), Number: r.Packet, Start: r.Start, End: r.End})
		}
	}
	return b.SVG()
}
