package capture

import (
	"encoding/binary"
	"io"
	"time"

	"github.com/gopacket/gopacket/layers"

	"github.com/trapeze-nic/trapeze/internal/cells"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// linkSunATM is LINKTYPE_SUNATM: PDUs of AAL5 behind a header that says which channel
// they belong to. tcpdump and Wireshark read it.
const linkSunATM layers.LinkType = 123

// The header of LINKTYPE_SUNATM: flags, VPI, and two bytes of VCI, most significant first.
const (
	sunATMHeader = 4
	sunATMSent   = 1 << 7 // in the flags; the traffic type below it stays 0, not known
)

// maxPDU is the longest PDU in bytes that is kept, with padding and trailer.
const maxPDU = cells.MaxCells * cells.PayloadSize

// maxHeld bounds what PDUs that are not complete may take, in bytes: who sends cells chooses on
// how many channels, and whether their PDUs end. A channel takes at least channelCost.
const (
	maxHeld     = 64 << 20
	channelCost = 256
)

// Direction says where a cell went.
type Direction uint8

// The directions.
const (
	Received Direction = iota
	Sent
)

// channel is one direction of a virtual circuit. Between other stations is another one with
// the same number.
type channel struct {
	direction       Direction
	vpi             uint8
	vci             uint16
	source, station datasheet.MAC // zero where nothing is known of stations
}

// partial is a PDU whose last cell has not come.
type partial struct {
	assembly cells.Assembly
	record   []byte // with the header of the link type
}

// CellWriter writes the PDUs that cells carry, of any channels interleaved in any way,
// each when its last cell came. A PDU stands in the file without padding and trailer, as
// readers expect it of this link type; one that is damaged or given up has all bytes of
// its cells instead. It is used by one goroutine at a time.
type CellWriter struct {
	file     *Writer
	partials map[channel]*partial
	frame    []byte // of Frame, aligned and not changed by others
	held     int    // bytes
	pdus     uint64
	damaged  uint64
}

// NewCellWriter begins a file of cells from one source. Its errors
// are those of w.
func NewCellWriter(w io.Writer, s Source) (*CellWriter, error) {
	file, err := begin(w, linkSunATM, 0, sunATMHeader+maxPDU, s)
	return &CellWriter{file: file, partials: map[channel]*partial{}, frame: make([]byte, MaxFrame)}, err
}

// Frame takes a frame of a Trapeze wire that came or went at a time. Those that carry no cells,
// and cells whose header is damaged, are left out. The frame may be changed meanwhile: it is
// looked at once. Errors are those of the file.
func (c *CellWriter) Frame(at time.Time, d Direction, frame []byte) error {
	frame = c.frame[:copy(c.frame, frame)]
	h := datasheet.HeaderAt(frame)
	if h == nil || h.EtherType != datasheet.EtherType || h.Version != datasheet.WireVersion || h.Type != datasheet.FrameCells {
		return nil
	}
	payload := frame[datasheet.HeaderSize:]
	all := datasheet.CellsAt(payload[:min(int(h.Length), len(payload))]) // Ethernet fills frames up
	for i := range all {
		b := [cells.HeaderSize]byte{all[i].Header[0], all[i].Header[1], all[i].Header[2], all[i].Header[3], all[i].HEC}
		head, err := cells.ParseHeader(&b)
		if err != nil {
			continue
		}
		on := channel{d, head.VPI, head.VCI, h.Source, h.Destination}
		if err := c.add(at, on, head, &all[i].Payload); err != nil {
			return err
		}
	}
	return nil
}

// Cell takes a cell that came or went at a time. Cells that carry no users' data are left
// out, and so are the bytes of a PDU behind the greatest length. Its errors are those
// of the file.
func (c *CellWriter) Cell(at time.Time, d Direction, h cells.Header, payload *[cells.PayloadSize]byte) error {
	return c.add(at, channel{direction: d, vpi: h.VPI, vci: h.VCI}, h, payload)
}

// add appends a cell to the PDU of its channel.
func (c *CellWriter) add(at time.Time, on channel, h cells.Header, payload *[cells.PayloadSize]byte) error {
	if !h.User() {
		return nil
	}
	p := c.partials[on]
	if p == nil {
		if c.held > maxHeld {
			return nil
		}
		p = &partial{}
		c.partials[on] = p
		c.held += channelCost
	}
	if p.assembly.Cells() == 0 {
		flags := byte(0)
		if on.direction == Sent {
			flags = sunATMSent
		}
		// The memory is that of the channel's last PDU.
		p.record = binary.BigEndian.AppendUint16(append(p.record[:0], flags, on.vpi), on.vci)
	}
	if room := cap(p.record); len(p.record) < sunATMHeader+maxPDU && (c.held <= maxHeld || len(p.record)+len(payload) <= room) {
		p.record = append(p.record, payload[:]...)
		c.held += cap(p.record) - room
	}
	trailer, err := p.assembly.Add(payload, h.Last())
	if !h.Last() {
		return nil
	}
	c.pdus++
	if end := sunATMHeader + int(trailer.Length); err == nil && end <= len(p.record) {
		return c.file.Write(at, p.record[:end])
	}
	c.damaged++
	return c.file.Write(at, p.record)
}

// PDUs returns how many PDUs were written, damaged ones included.
func (c *CellWriter) PDUs() uint64 { return c.pdus }

// Damaged returns how many PDUs were refused: CRC or length wrong, or given up, or there were
// too many others that did not end.
func (c *CellWriter) Damaged() uint64 { return c.damaged }

// Flush writes what is still in memory, but for PDUs that are incomplete.
func (c *CellWriter) Flush() error { return c.file.Flush() }
