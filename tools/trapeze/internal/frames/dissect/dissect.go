// Package dissect says what stands in the frames of a Trapeze wire that are about cells: the
// cells themselves, the ends of their PDUs, and stop and start (SPEC.md 17). Whatever is in a
// frame, it is described and nothing more.
package dissect

import (
	"errors"
	"fmt"
	"strings"

	"github.com/trapeze-nic/trapeze/internal/cells"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// Frame is a frame that carries cells, or says stop or start.
type Frame struct {
	Type        string `json:"type"`
	Source      string `json:"source"`
	Destination string `json:"destination"`
	// SourceEndpoint and DestinationEndpoint are those of the first cell's channel, or of any
	// channel of the two stations for stop and start.
	SourceEndpoint      uint32 `json:"source_endpoint"`
	DestinationEndpoint uint32 `json:"destination_endpoint"`
	PSN                 uint32 `json:"psn"`
	// Malformed says why no device takes the frame; the cells that are whole are there.
	Malformed string `json:"malformed,omitempty"`
	Cells     []Cell `json:"cells,omitempty"`
}

// Cell is a cell of a frame. If HEC is false, what its header says may be wrong.
type Cell struct {
	Channel uint16 `json:"channel"` // the VCI
	VPI     uint8  `json:"vpi"`
	PTI     uint8  `json:"pti"`
	CLP     bool   `json:"clp"`
	Last    bool   `json:"last"` // its PDU ends with it
	HEC     bool   `json:"hec_right"`
	PDU     *PDU   `json:"pdu,omitempty"` // behind the last cell
}

// PDU holds the trailer of AAL5, and how far it is right.
type PDU struct {
	UU     uint8  `json:"uu"`
	CPI    uint8  `json:"cpi"`
	Length uint16 `json:"length"` // in bytes
	CRC    uint32 `json:"crc"`
	Cells  int    `json:"cells"` // of the PDU that were seen
	State  State  `json:"state"`
}

// State says whether a PDU fits its trailer.
type State string

// The states.
const (
	Right       State = "right"
	WrongCRC    State = "CRC wrong"
	WrongLength State = "length wrong"
	GivenUp     State = "given up"
	// Unknown: the PDU may have begun before the first cell of its channel that was seen.
	Unknown State = "not known, it began before"
)

// Totals count what was seen.
type Totals struct {
	Frames    uint64 `json:"frames" help:"of cells"`
	Malformed uint64 `json:"malformed"`
	Cells     uint64 `json:"cells"`
	WrongHEC  uint64 `json:"wrong_hec"`
	PDUs      uint64 `json:"pdus"` // of which an end was seen
	Damaged   uint64 `json:"damaged"`
	Unknown   uint64 `json:"unknown" help:"began before the dump"`
	Stops     uint64 `json:"stops"`
	Starts    uint64 `json:"starts"`
}

// circuit is a channel of one connection: a later one with the same number has another tag.
type circuit struct {
	source, destination datasheet.MAC
	vpi                 uint8
	vci                 uint16
	tag                 [3]byte
}

// partial is the PDU of a channel whose last cell has not come.
type partial struct {
	assembly cells.Assembly
	ended    bool // one before it has: so its beginning was seen
}

// mostCircuits bounds what is remembered: who sends cells chooses on how many channels.
const mostCircuits = 1 << 16

// Dissector describes frames, in the order in which they came. It is used by one goroutine at
// a time.
type Dissector struct {
	partials map[circuit]*partial
	totals   Totals
	frame    []byte // aligned
}

// New makes a Dissector that has seen nothing.
func New() *Dissector { return &Dissector{partials: map[circuit]*partial{}} }

// Totals returns what was seen so far.
func (d *Dissector) Totals() Totals { return d.totals }

// Frame describes a frame, with its Ethernet header and what it may be filled up with, and
// reports whether it is about cells; others are left to others.
func (d *Dissector) Frame(frame []byte) (f Frame, about bool) {
	if d.frame == nil {
		d.frame = make([]byte, datasheet.MaxMTU)
	}
	frame = d.frame[:copy(d.frame, frame)]
	h := datasheet.HeaderAt(frame)
	if h == nil || h.EtherType != datasheet.EtherType || h.Version != datasheet.WireVersion {
		return f, false
	}
	f = Frame{Type: h.Type.String(), Source: h.Source.String(), Destination: h.Destination.String(),
		SourceEndpoint: h.SourceEndpoint, DestinationEndpoint: h.DestinationEndpoint, PSN: h.PSN}
	switch h.Type {
	case datasheet.FrameCellStop:
		d.totals.Stops++
	case datasheet.FrameCellStart:
		d.totals.Starts++
	case datasheet.FrameCells:
		d.totals.Frames++
		d.cells(&f, h, frame[datasheet.HeaderSize:])
	default:
		return Frame{}, false
	}
	if f.Malformed != "" {
		d.totals.Malformed++
	}
	return f, true
}

// cells describes the cells of a frame.
func (d *Dissector) cells(f *Frame, h *datasheet.Header, payload []byte) {
	said := int(h.Length)
	switch {
	case h.Flags&datasheet.FrameReference != 0: // what follows are no cells
		f.Malformed = "cells by reference"
		return
	case said > len(payload):
		f.Malformed = fmt.Sprintf("cut off: %d bytes of %d", len(payload), said)
	case said == 0 || said%datasheet.CellSize != 0:
		f.Malformed = fmt.Sprintf("%d bytes, no whole cells of %d", said, datasheet.CellSize)
	}
	all := datasheet.CellsAt(payload[:min(said, len(payload))])
	for i := range all {
		f.Cells = append(f.Cells, d.cell(h, &all[i]))
	}
}

// cell describes a cell, and puts it to its PDU.
func (d *Dissector) cell(h *datasheet.Header, on *datasheet.Cell) Cell {
	d.totals.Cells++
	b := [cells.HeaderSize]byte{on.Header[0], on.Header[1], on.Header[2], on.Header[3], on.HEC}
	head, err := cells.ParseHeader(&b)
	if err != nil {
		// What stands there is shown; a device drops the cell.
		d.totals.WrongHEC++
		head = cells.HeaderOf(uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3]))
	}
	c := Cell{Channel: head.VCI, VPI: head.VPI, PTI: head.PTI, CLP: head.CLP, Last: head.Last(), HEC: err == nil}
	if err != nil || !head.User() {
		return c
	}
	at := circuit{h.Source, h.Destination, head.VPI, head.VCI, on.Tag}
	p := d.partials[at]
	if p == nil {
		if len(d.partials) >= mostCircuits {
			clear(d.partials)
		}
		p = &partial{}
		d.partials[at] = p
	}
	seen := p.assembly.Cells() + 1
	t, err := p.assembly.Add(&on.Payload, c.Last)
	if c.Last {
		c.PDU = &PDU{t.UU, t.CPI, t.Length, t.CRC, seen, stateOf(err)}
		if missing := t.Length == 0 || cells.Count(int(t.Length)) > seen; err != nil && err != cells.ErrAborted && !p.ended && missing {
			c.PDU.State = Unknown
		}
		p.ended = true
		d.count(c.PDU.State)
	}
	return c
}

func stateOf(err error) State {
	switch {
	case err == nil:
		return Right
	case errors.Is(err, cells.ErrCRC):
		return WrongCRC
	case errors.Is(err, cells.ErrAborted):
		return GivenUp
	}
	return WrongLength
}

func (d *Dissector) count(s State) {
	d.totals.PDUs++
	switch s {
	case Unknown:
		d.totals.Unknown++
	case WrongCRC, WrongLength, GivenUp:
		d.totals.Damaged++
	}
}

// String returns the text behind addresses and length in the line of a frame, and a line more
// for each cell, without a newline at the end.
func (f Frame) String() string {
	var w strings.Builder
	fmt.Fprintf(&w, "%s, endpoint %d > %d", f.Type, f.SourceEndpoint, f.DestinationEndpoint)
	if f.Cells != nil || f.Malformed != "" {
		fmt.Fprintf(&w, ", PSN %d, cells: %d", f.PSN, len(f.Cells))
	}
	if f.Malformed != "" {
		fmt.Fprintf(&w, ", malformed: %s", f.Malformed)
	}
	for i := range f.Cells {
		w.WriteString("\n    ")
		f.Cells[i].describe(&w)
	}
	return w.String()
}

func (c *Cell) describe(w *strings.Builder) {
	fmt.Fprintf(w, "channel %d", c.Channel)
	if c.VPI != 0 {
		fmt.Fprintf(w, ", VPI %d", c.VPI)
	}
	fmt.Fprintf(w, ", PTI %d", c.PTI)
	if c.CLP {
		w.WriteString(", CLP")
	}
	if c.Last {
		w.WriteString(", end of PDU")
	}
	if c.HEC {
		w.WriteString(", HEC right")
	} else {
		w.WriteString(", HEC wrong")
	}
	if p := c.PDU; p != nil {
		fmt.Fprintf(w, "; AAL5: %d bytes, UU %d, CPI %d, CRC %08x, cells seen: %d: %s", p.Length, p.UU, p.CPI, p.CRC, p.Cells, p.State)
	}
}
