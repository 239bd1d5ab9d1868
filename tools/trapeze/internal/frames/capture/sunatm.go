package capture

import (
	"encoding/binary"
	"io"
	"time"

	"github.com/gopacket/gopacket/layers"

	"github.com/trapeze-nic/trapeze/pipeline/cells"
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

// Direction says where a cell went.
type Direction uint8

// The directions.
const (
	Received Direction = iota
	Sent
)

// channel is one direction of a virtual circuit.
type channel struct {
	direction Direction
	vpi       uint8
	vci       uint16
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
	damaged  uint64
}

// NewCellWriter begins a file of cells from one source. Application is who writes it. Its
// errors are those of w.
func NewCellWriter(w io.Writer, f Format, s Source, application string) (*CellWriter, error) {
	file, err := begin(w, f, linkSunATM, 0, sunATMHeader+maxPDU, s, application)
	return &CellWriter{file: file, partials: map[channel]*partial{}}, err
}

// Cell takes a cell that came or went at a time. Cells that carry no users' data are left
// out, and so is what a PDU has behind the length that any can have. Its errors are those
// of the file.
func (c *CellWriter) Cell(at time.Time, d Direction, h cells.Header, payload *[cells.PayloadSize]byte) error {
	if !h.User() {
		return nil
	}
	on := channel{d, h.VPI, h.VCI}
	p := c.partials[on]
	if p == nil {
		p = &partial{}
		c.partials[on] = p
	}
	if p.assembly.Cells() == 0 {
		flags := byte(0)
		if d == Sent {
			flags = sunATMSent
		}
		// The memory is that of the channel's last PDU.
		p.record = binary.BigEndian.AppendUint16(append(p.record[:0], flags, h.VPI), h.VCI)
	}
	if len(p.record) < sunATMHeader+maxPDU {
		p.record = append(p.record, payload[:]...)
	}
	trailer, err := p.assembly.Add(payload, h.Last())
	switch {
	case !h.Last():
		return nil
	case err != nil:
		c.damaged++
		return c.file.Write(at, p.record)
	}
	return c.file.Write(at, p.record[:sunATMHeader+int(trailer.Length)])
}

// Damaged returns how many PDUs were refused: CRC or length wrong, or given up.
func (c *CellWriter) Damaged() uint64 { return c.damaged }

// Flush writes what is still in memory, but for PDUs that are incomplete.
func (c *CellWriter) Flush() error { return c.file.Flush() }
