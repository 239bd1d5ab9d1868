// Package capture writes and reads files of frames, and writes those of cells' PDUs: pcap
// and pcapng, with times in nanoseconds. The formats themselves are gopacket's.
package capture

import (
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// Format of a file.
type Format string

// The formats.
const (
	PCAP   Format = "pcap"
	PCAPNG Format = "pcapng"
)

// FormatOf is the format that the name of a file stands for: pcap for .pcap, else pcapng.
func FormatOf(name string) Format {
	if strings.EqualFold(filepath.Ext(name), ".pcap") {
		return PCAP
	}
	return PCAPNG
}

// MaxFrame is the longest frame in bytes that is written.
const MaxFrame = 1 << 16

// ErrFormat: a file is neither pcap nor pcapng, is cut off (io.ErrUnexpectedEOF too) or contradicts
// itself, or holds no Ethernet frames.
var ErrFormat = errors.New("not a pcap or pcapng file of Ethernet frames, or a damaged one")

// Errors of one record, behind which Next goes on.
var (
	ErrLinkType = errors.New("it is of another link type than Ethernet")
	ErrLengths  = errors.New("it has more bytes than the frame is said to have had")
)

// Writer writes a file. It is used by one goroutine at a time.
type Writer struct {
	pcap    *pcapgo.Writer
	buffer  *bufio.Writer // of pcap
	pcapng  *pcapgo.NgWriter
	snaplen int
}

// Source is the origin of the frames of a file.
type Source struct {
	// Name is an address, Filter the expression that they match; empty for all.
	Name, Filter string
}

// NewWriter begins a file of frames from one source, of which at most snaplen bytes are
// kept; 0 for all of them. Application is who writes it. Its errors are those of w.
func NewWriter(w io.Writer, f Format, snaplen int, s Source, application string) (*Writer, error) {
	return begin(w, f, layers.LinkTypeEthernet, snaplen, MaxFrame, s, application)
}

// begin begins a file of frames of one kind, which have at most greatest bytes.
func begin(w io.Writer, f Format, link layers.LinkType, snaplen, greatest int, s Source, application string) (_ *Writer, err error) {
	c := &Writer{snaplen: snaplen}
	if snaplen == 0 {
		c.snaplen = greatest
	}
	if f == PCAP {
		c.buffer = bufio.NewWriterSize(w, 1<<16)
		c.pcap = pcapgo.NewWriterNanos(c.buffer)
		return c, c.pcap.WriteFileHeader(uint32(c.snaplen), link)
	}
	options := pcapgo.DefaultNgWriterOptions
	options.SectionInfo.Application = application
	c.pcapng, err = pcapgo.NewNgWriterInterface(w, pcapgo.NgInterface{Name: s.Name, Filter: s.Filter, LinkType: link,
		SnapLength: uint32(snaplen), TimestampResolution: 9, OS: options.SectionInfo.OS}, options)
	return c, err
}

// Write appends a frame that came at a time. Its errors are those of the file.
func (c *Writer) Write(at time.Time, frame []byte) error { return c.WriteCut(at, frame, len(frame)) }

// WriteCut is Write of what was kept of a frame that was longer.
func (c *Writer) WriteCut(at time.Time, frame []byte, length int) error {
	info := gopacket.CaptureInfo{Timestamp: at, Length: length, CaptureLength: min(len(frame), c.snaplen)}
	if c.pcap != nil {
		return c.pcap.WritePacket(info, frame[:info.CaptureLength])
	}
	return c.pcapng.WritePacket(info, frame[:info.CaptureLength])
}

// Flush writes what is still in memory.
func (c *Writer) Flush() error {
	if c.pcap != nil {
		return c.buffer.Flush()
	}
	return c.pcapng.Flush()
}

// Reader reads a file. It is used by one goroutine at a time.
type Reader struct {
	file *bufio.Reader
	// One of these reads it. Fcs is the number of bytes of check sequence that the frames of pcap have.
	pcap   *pcapgo.Reader
	pcapng *pcapgo.NgReader
	fcs    int
}

// pcapngMagic is the type of the block that a pcapng file begins with.
const pcapngMagic = 0x0a0d0d0a

// NewReader begins to read a file of either format, which may be compressed by gzip. It fails with
// ErrFormat, and with errors of r.
func NewReader(r io.Reader) (*Reader, error) {
	c := &Reader{file: bufio.NewReaderSize(r, 1<<16)}
	magic, err := c.file.Peek(4)
	if err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		var unzipped *gzip.Reader
		if unzipped, err = gzip.NewReader(c.file); err == nil {
			c.file = bufio.NewReaderSize(unzipped, 1<<16)
			magic, err = c.file.Peek(4)
		}
	}
	if err != nil {
		return nil, wrong(err)
	}
	if binary.LittleEndian.Uint32(magic) == pcapngMagic {
		if c.pcapng, err = pcapgo.NewNgReader(c.file, pcapgo.NgReaderOptions{WantMixedLinkType: true}); err != nil {
			return nil, wrong(err)
		}
		return c, nil
	}
	// The link type is the lower half of a word. The upper half says whether frames end with a check
	// sequence, in units of 2 bytes (pcap-savefile(5)). Peek returns all that is there.
	header, _ := c.file.Peek(24)
	if c.pcap, err = pcapgo.NewReader(c.file); err != nil {
		return nil, wrong(err)
	}
	link := binary.LittleEndian.Uint32(header[20:])
	if header[0] == 0xa1 {
		link = binary.BigEndian.Uint32(header[20:])
	}
	if link&(1<<26) != 0 {
		c.fcs = int(link>>28) * 2
	}
	if link := c.pcap.LinkType(); link != layers.LinkTypeEthernet {
		return nil, fmt.Errorf("%w: its frames are of link type %d, Ethernet is %d", ErrFormat, link, layers.LinkTypeEthernet)
	}
	return c, nil
}

// wrong marks what is no error of the file system.
func wrong(err error) error {
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("%w: %w", ErrFormat, err)
}

// Next returns the next frame without its check sequence, what was kept of it, when it came, and how
// long it was. The bytes are valid until Next is called again. It fails with io.EOF at the end of the
// file, with ErrFormat, and with ErrLinkType or ErrLengths for one record.
func (c *Reader) Next() (frame []byte, at time.Time, length int, err error) {
	var info gopacket.CaptureInfo
	fcs, link := c.fcs, layers.LinkTypeEthernet
	if c.pcap != nil {
		frame, info, err = c.pcap.ZeroCopyReadPacketData()
		if err != nil && info.CaptureLength > info.Length && info.CaptureLength <= MaxFrame {
			_, err = c.file.Discard(info.CaptureLength) // it has read only the lengths
			frame = make([]byte, info.CaptureLength)
		}
		if info.CaptureLength > 0 && err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
	} else {
		var options pcapgo.NgPacketOptions
		frame, info, options, err = c.pcapng.ZeroCopyReadPacketDataWithOptions()
		if err == nil {
			link = info.AncillaryData[0].(layers.LinkType)
		}
		if options.Flags != nil {
			fcs = int(options.Flags.FCSLen >> 5)
		}
	}
	switch {
	case err == io.EOF:
		return nil, at, 0, err
	case err != nil:
		return nil, at, 0, wrong(err)
	case link != layers.LinkTypeEthernet:
		return nil, at, 0, fmt.Errorf("%w: %d", ErrLinkType, link)
	case len(frame) > info.Length:
		return nil, at, 0, fmt.Errorf("%w: %d of %d", ErrLengths, len(frame), info.Length)
	}
	length = max(0, info.Length-fcs)
	return frame[:min(len(frame), length)], info.Timestamp, length, nil
}
