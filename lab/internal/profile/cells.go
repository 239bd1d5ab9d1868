package profile

import (
	"embed"
	"fmt"

	"github.com/trapeze-nic/trapeze/internal/cells"
)

//go:embed celled/*.toml
var celled embed.FS

// Cells is a platform whose NICs send and receive cells: hosts that are all alike, and the
// paths between them.
type Cells struct {
	Name    string
	Summary string

	Send    Time // a NIC sends one cell
	Receive Time // a NIC stores one cell and sets the channel's flag
	Path    Time // from the end of a Send until the cell is there to be received
	Bytes   int  // of a cell inside the NIC, with header

	Store      Time // a program's store to a send FIFO, until the NIC has it
	Turnaround Time // from a channel's flag until the program that polls it begins a store
}

// rawCells is the file of such a platform.
type rawCells struct {
	Summary string
	Base    *string
	Clock   struct{ Period *string }
	NIC     struct {
		Send, Receive *int64
		Cell          *string
	}
	Path struct{ Latency *string }
	Host struct{ Store, Turnaround *string }
}

// cellKeys hold what such a file may say.
var cellKeys = keys{
	names:   "summary, base, clock.period, nic.{send,receive,cell}, path.latency, host.{store,turnaround}",
	example: `each key once, with a quoted quantity and its unit, such as "20 ns"; send and receive are whole numbers of clock periods`,
}

// CellHosts are the platforms with cells.
var CellHosts = Library[*Cells]{celled, "celled", parseCells}

func parseCells(l Library[*Cells], title, file string, text []byte) (*Cells, error) {
	w, err := onBase(l.Source, file, text, cellKeys, func(w *rawCells) *string { return w.Base })
	if err != nil {
		return nil, err
	}
	r := &resolver{file: file}
	take := func(key string, text *string) Time { return Micros(r.quantity(span, entry{key, text})) }
	period := take("clock.period", w.Clock.Period)
	c := &Cells{
		Name: title, Summary: w.Summary,
		Send:       r.states("nic.send", w.NIC.Send, period),
		Receive:    r.states("nic.receive", w.NIC.Receive, period),
		Path:       take("path.latency", w.Path.Latency),
		Bytes:      int(r.quantity(size, entry{"nic.cell", w.NIC.Cell})),
		Store:      take("host.store", w.Host.Store),
		Turnaround: take("host.turnaround", w.Host.Turnaround),
	}
	if r.err == nil && period == 0 {
		r.fail("clock.period", *w.Clock.Period, "more than 0, up to 10 ms", ErrValue)
	}
	if r.err == nil && c.Bytes < cells.PayloadSize {
		r.fail("nic.cell", *w.NIC.Cell, fmt.Sprintf("%d to 4096 B", cells.PayloadSize), ErrValue)
	}
	if r.err != nil {
		return nil, r.err
	}
	return c, nil
}

// states reads a required number of clock periods and returns the time that they take, which
// has the range of every span.
func (r *resolver) states(key string, n *int64, period Time) Time {
	most := int64(Micros(span.high) / max(period, 1))
	return Time(r.ranged(key, n, 1, most, "1 clock period to 10 ms")) * period
}
