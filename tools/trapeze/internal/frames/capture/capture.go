// Package capture writes files of frames: pcapng, with times in nanoseconds. The format itself is
// gopacket's.
package capture

import (
	"io"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// MaxFrame is the longest frame in bytes that is written.
const MaxFrame = 1 << 16

// Writer writes a file. It is used by one goroutine at a time.
type Writer struct {
	file    *pcapgo.NgWriter
	snaplen int
}

// Source is the origin of the frames of a file.
type Source struct {
	// Name is an address, Filter the fields that they have; empty for all.
	Name, Filter string
}

// NewWriter begins a file of frames from one source, of which at most snaplen bytes are
// kept; 0 for all of them. Its errors are those of w.
func NewWriter(w io.Writer, snaplen int, s Source) (*Writer, error) {
	options := pcapgo.DefaultNgWriterOptions
	options.SectionInfo.Application = "trapeze"
	file, err := pcapgo.NewNgWriterInterface(w, pcapgo.NgInterface{Name: s.Name, Filter: s.Filter, LinkType: layers.LinkTypeEthernet,
		SnapLength: uint32(snaplen), TimestampResolution: 9, OS: options.SectionInfo.OS}, options)
	if snaplen == 0 {
		snaplen = MaxFrame
	}
	return &Writer{file, snaplen}, err
}

// Write appends a frame that came at a time. Its errors are those of the file.
func (c *Writer) Write(at time.Time, frame []byte) error { return c.WriteCut(at, frame, len(frame)) }

// WriteCut is Write of what was kept of a frame that was longer.
func (c *Writer) WriteCut(at time.Time, frame []byte, length int) error {
	n := min(len(frame), c.snaplen)
	return c.file.WritePacket(gopacket.CaptureInfo{Timestamp: at, Length: length, CaptureLength: n}, frame[:n])
}

// Flush writes what is still in memory.
func (c *Writer) Flush() error { return c.file.Flush() }
