package profile

import (
	"embed"
	"fmt"
)

//go:embed celled/*.toml
var celled embed.FS

// Cells is a platform whose NICs send and receive cells: hosts that are all alike, and the
// paths between them.
type Cells struct {
	Name    string
	Summary string

	Period     Time `key:"clock.period" is:"time"`           // of the NIC's clock
	Send       Time `key:"nic.send" is:"count 1 1000000"`    // a NIC sends one cell; in periods in a file
	Receive    Time `key:"nic.receive" is:"count 1 1000000"` // a NIC stores one cell and sets the channel's flag; likewise
	Path       Time `key:"path.latency" is:"time"`           // from the end of a Send until the cell is there to be received
	Bytes      int  `key:"nic.cell" is:"bytes 48 4096"`      // of a cell inside the NIC, with header
	Store      Time `key:"host.store" is:"time"`             // a program's store to a send FIFO, until the NIC has it
	Turnaround Time `key:"host.turnaround" is:"time"`        // from a channel's flag until the program that polls it begins a store
}

// CellHosts are the platforms with cells.
var CellHosts = Library[*Cells]{celled, "celled", (*resolver).cells}

func (r *resolver) cells() *Cells {
	p := &Cells{Name: r.name, Summary: r.text("summary")}
	r.fill(p, "", "")
	if p.Period == 0 {
		r.fail("clock.period", "0", "more than 0, up to 10 ms", ErrValue)
	}
	r.periods("nic.send", &p.Send, p.Period)
	r.periods("nic.receive", &p.Receive, p.Period)
	return p
}

// periods turns a number of clock periods into the time that they take, which has the range of every span.
func (r *resolver) periods(key string, n *Time, period Time) {
	if *n > Micros(span.high)/max(period, 1) {
		r.fail(key, fmt.Sprint(int64(*n)), "1 clock period to 10 ms", ErrValue)
	}
	*n *= period
}
