// Package profile holds cost profiles: what a transfer costs on a platform, as
// TOML files. The published platforms of 1997 and PCIe generations 3 to 6 are
// built in; other files have the same form. Memory systems are platforms as a single
// message meets them on its way into the NIC, in files of their own.
package profile

import (
	"embed"
	"encoding/json"
	"fmt"
	"math"
)

// Time is a span of virtual time in picoseconds. Integers keep the model exact
// and the same on every machine.
type Time int64

// Microseconds returns t in microseconds.
func (t Time) Microseconds() float64 { return float64(t) / 1e6 }

func (t Time) String() string { return fmt.Sprintf("%.3f", t.Microseconds()) }

// MarshalJSON encodes t in microseconds.
func (t Time) MarshalJSON() ([]byte, error) { return json.Marshal(t.Microseconds()) }

// Micros makes a Time from microseconds.
func Micros(us float64) Time { return Time(math.Round(us * 1e6)) }

// Cost holds what a transfer of n bytes takes: t(n) = overhead + n / bandwidth.
type Cost struct {
	Overhead Time
	PerByte  int64 // femtoseconds; 6,250,000 is 160 MB/s
}

// NewCost makes a Cost from an overhead in microseconds and a bandwidth in MB/s
// (MB = 10^6 bytes).
func NewCost(overheadUs, mbPerS float64) Cost {
	return Cost{Overhead: Micros(overheadUs), PerByte: int64(math.Round(1e9 / mbPerS))}
}

// Bandwidth returns the bandwidth in MB/s.
func (c Cost) Bandwidth() float64 { return 1e9 / float64(c.PerByte) }

// Bytes returns the time that n bytes take without the overhead, rounded up.
func (c Cost) Bytes(n int) Time { return Time((int64(n)*c.PerByte + 999) / 1000) }

// Transfer returns the time of a transfer of n bytes.
func (c Cost) Transfer(n int) Time { return c.Overhead + c.Bytes(n) }

// Bus is the I/O bus between a host's memory and its NIC.
type Bus struct {
	FullDuplex bool `key:"duplex" is:"half full"`                              // reads and writes at the same time (PCIe); else one transfer at a time (PCI)
	Read       Cost `key:"read" is:"rate" overhead:"read_overhead,overhead"`   // hostTx: NIC reads host memory
	Write      Cost `key:"write" is:"rate" overhead:"write_overhead,overhead"` // hostRcv: NIC writes host memory
}

// Link is the wire, full duplex.
type Link struct {
	Pulse   Cost `key:"bandwidth" is:"rate" overhead:"overhead"` // one netTx pulse; netRcv follows in lock step
	Latency Time `key:"latency" is:"time"`                       // from a byte's leaving to its arrival, switch included
	Header  int  `key:"header" is:"bytes 0 4096"`                // bytes of the control message ahead of each payload
}

// NIC is the interface's own processor and memory.
type NIC struct {
	Decision   Time  `key:"decision" is:"time"`                   // firmware time to start one transfer
	Completion Time  `key:"completion" is:"time"`                 // firmware time to take note of the end of an incoming transfer
	Packet     Time  `key:"packet" is:"time"`                     // firmware time for a packet's control message, at each end
	LogPacket  Time  `key:"log_packet" is:"time" optional:"yes"`  // to write what a DMA log has of a packet's control message that is sent
	LogSend    Time  `key:"log_send" is:"time" optional:"yes"`    // to write a record of a transfer into a DMA log, while it sends
	LogReceive Time  `key:"log_receive" is:"time" optional:"yes"` // the same while it receives
	Buffers    int   `key:"buffers" is:"count 1 1024"`            // payload buffers in each direction
	Memory     int64 `key:"memory" is:"rate" optional:"yes"`      // NIC memory, femtoseconds per byte over all engines; 0 = never the limit
}

// Profile is a platform: two hosts, their NICs (alike) and the link.
type Profile struct {
	Name     string
	Summary  string
	Sender   Bus
	Receiver Bus
	NIC      NIC
	Link     Link
	Host     Time `key:"cost" is:"time"` // fixed cost on the hosts, half at each end
}

//go:embed platforms/*.toml
var platforms embed.FS

// Hosts are the cost profiles.
var Hosts = Library[*Profile]{platforms, "platforms", (*resolver).host}

// host resolves a profile. A host's own table of its bus goes before the common one; in a table the overhead of
// one direction goes before that of both.
func (r *resolver) host() *Profile {
	p := &Profile{Name: r.name, Summary: r.text("summary")}
	r.fill(&p.Sender, "", "sender.bus", "bus")
	r.fill(&p.Receiver, "", "receiver.bus", "bus")
	r.fill(p, "", "host")
	r.fill(&p.NIC, "", "nic")
	r.fill(&p.Link, "", "link")
	return p
}

// Error is a profile that cannot be used: where, which key, and what is allowed.
type Error struct {
	File    string
	Key     string // dotted, such as sender.bus.read; empty if the file as a whole is wrong
	Value   string
	Allowed string
	Err     error
}

func (e *Error) Error() string {
	s := e.File + ": "
	if e.Key != "" {
		s += e.Key + ": "
	}
	s += e.Err.Error()
	if e.Value != "" {
		s += fmt.Sprintf(" %q", e.Value)
	}
	if e.Allowed != "" {
		s += " (allowed: " + e.Allowed + ")"
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }

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
