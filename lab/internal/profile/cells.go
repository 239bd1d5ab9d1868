package profile

import (
	"embed"
	"strings"

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

// CellHosts are the platforms with cells.
var CellHosts = Library[*Cells]{celled, "celled", strings.Fields("clock.period nic.send nic.receive nic.cell path.latency host.store host.turnaround"), (*resolver).cells}

func (r *resolver) cells() *Cells {
	period := r.time("clock.period")
	if r.err == nil && period == 0 {
		r.fail("clock.period", "0", "more than 0, up to 10 ms", ErrValue)
	}
	return &Cells{
		Name: r.name, Summary: r.text("summary"),
		Send:       r.states("nic.send", period),
		Receive:    r.states("nic.receive", period),
		Path:       r.time("path.latency"),
		Bytes:      r.bytes("nic.cell", cells.PayloadSize, 4096),
		Store:      r.time("host.store"),
		Turnaround: r.time("host.turnaround"),
	}
}

// states reads a number of clock periods and returns the time that they take, which has the range of every span.
func (r *resolver) states(key string, period Time) Time {
	most := int64(Micros(span.high) / max(period, 1))
	return Time(r.ranged(key, 1, most, "1 clock period to 10 ms")) * period
}
