// Package framering carries frames that are shown to another process, through memory that both
// have mapped, in one direction. The writer never waits: a frame for which there is no room is
// counted and left out. Neither side trusts what the other one writes.
package framering

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/internal/atomicmem"
)

const (
	// headerSize is the size in bytes of what stands before the ring: a page, so that rings
	// are aligned.
	headerSize = 4096
	// recordHeader is the size in bytes of what stands before a frame, and of the units that
	// records are made of: what is left before the end of the ring has room for one.
	recordHeader = 32
	// MaxFrame is the longest frame in bytes; more of one is cut off.
	MaxFrame = 1 << 16
	// minRing and maxRing bound a ring in bytes.
	minRing, maxRing = 2 * MaxFrame, 1 << 30
	// mark is at the start of the memory. Its last byte is the version of the format.
	mark = 0x5452_4652_494e_4701
)

// Size returns the bytes of memory that a ring of 2^log2 bytes takes; log2 is 17 to 30.
func Size(log2 int) int { return headerSize + 1<<log2 }

// ErrFormat: memory holds no ring, or its writer contradicts itself.
var ErrFormat = errors.New("not a ring of frames")

// head is memory before the ring that both sides see. Positions count bytes and are free-running. The
// lines that different sides write are apart.
type head struct {
	mark, size uint64
	_          [112]byte
	written    uint64 // position behind the last record
	dropped    uint64 // frames
	ended      uint64 // not 0 once no frame will come any more
	_          [104]byte
	read       uint64 // position behind the last record that was read
}

// A record is its header and the bytes of a frame that were kept, filled up to a multiple of
// recordHeader. Its header has, little-endian:
const (
	atKept   = 0  // 32 bits: how many bytes were kept, or skip
	atLength = 4  // 32 bits: the length of the frame
	atTime   = 8  // 64 bits: nanoseconds since 1970
	atSent   = 16 // 32 bits: 1 of a frame that was sent
)

// skip is in place of the length of a record that only fills the ring up to its end.
const skip = 1<<32 - 1

func sizeOf(kept int) uint64 {
	return (recordHeader + uint64(kept) + recordHeader - 1) &^ (recordHeader - 1)
}

// Writer writes frames. One goroutine at a time uses it.
type Writer struct {
	head             *head
	ring             []byte
	snaplen          int
	written, dropped uint64
}

// NewWriter makes a ring in memory of Size bytes, aligned to 8. Of each frame at most snaplen
// bytes are kept; 0 for MaxFrame. It fails with ErrFormat if the memory has another size.
func NewWriter(memory []byte, snaplen int) (*Writer, error) {
	size := uint64(max(len(memory)-headerSize, 0))
	if err := check(memory, size); err != nil {
		return nil, err
	}
	if snaplen <= 0 || snaplen > MaxFrame {
		snaplen = MaxFrame
	}
	w := &Writer{head: headOf(memory), ring: memory[headerSize:], snaplen: snaplen}
	*w.head = head{mark: mark, size: size}
	return w, nil
}

// check refuses memory that is no ring of size bytes.
func check(memory []byte, size uint64) error {
	if size < minRing || size > maxRing || size&(size-1) != 0 || uint64(len(memory)) < headerSize+size {
		return fmt.Errorf("%w: %d bytes for a ring of %d", ErrFormat, len(memory), size)
	}
	return nil
}

// Put writes a frame if there is room for it. It allocates nothing and makes no system call.
func (w *Writer) Put(at time.Time, sent bool, frame []byte) {
	kept := min(len(frame), w.snaplen)
	size, need := uint64(len(w.ring)), sizeOf(kept)
	from := w.written & (size - 1)
	gap := uint64(0)
	if from+need > size {
		gap = size - from
	}
	// A reader that lies gets wrong frames, and harms itself alone.
	if used := w.written - atomic.LoadUint64(&w.head.read); used > size || used+gap+need > size {
		w.dropped++
		atomicmem.Store64(&w.head.dropped, w.dropped)
		return
	}
	if gap > 0 {
		binary.LittleEndian.PutUint32(w.ring[from+atKept:], skip)
		from = 0
	}
	record := w.ring[from : from+need]
	binary.LittleEndian.PutUint32(record[atKept:], uint32(kept))
	binary.LittleEndian.PutUint32(record[atLength:], uint32(len(frame)))
	binary.LittleEndian.PutUint64(record[atTime:], uint64(at.UnixNano()))
	direction := uint32(0)
	if sent {
		direction = 1
	}
	binary.LittleEndian.PutUint32(record[atSent:], direction)
	copy(record[recordHeader:], frame[:kept])
	w.written += gap + need
	atomicmem.Store64(&w.head.written, w.written)
}

// End says that no frame will come any more.
func (w *Writer) End() { atomicmem.Store64(&w.head.ended, 1) }

// Frame is one that was shown.
type Frame struct {
	At   time.Time
	Sent bool
	// Length is that of the frame in bytes, of which Bytes were kept.
	Length int
	Bytes  []byte
}

// Reader reads what a writer writes. One goroutine at a time uses it.
type Reader struct {
	head  *head
	ring  []byte
	read  uint64
	frame []byte
}

// NewReader begins to read a ring in memory that another process has passed. It fails with
// ErrFormat.
func NewReader(memory []byte) (*Reader, error) {
	if len(memory) < headerSize {
		return nil, check(memory, 0)
	}
	h := headOf(memory)
	size := h.size
	if h.mark != mark {
		return nil, fmt.Errorf("%w: it begins with %#x, want %#x", ErrFormat, h.mark, uint64(mark))
	}
	if err := check(memory, size); err != nil {
		return nil, err
	}
	return &Reader{head: h, ring: memory[headerSize : headerSize+size], frame: make([]byte, MaxFrame)}, nil
}

// Next returns the oldest frame that was not read yet; ok is false if there is none. Its bytes
// are valid until the next call. It fails with ErrFormat.
func (r *Reader) Next() (f Frame, ok bool, err error) {
	size := uint64(len(r.ring))
	for {
		there := atomic.LoadUint64(&r.head.written) - r.read
		if there == 0 {
			return f, false, nil
		}
		from := r.read & (size - 1)
		record := r.ring[from:]
		kept := binary.LittleEndian.Uint32(record[atKept:])
		if kept == skip && from != 0 {
			r.release(size - from)
			continue
		}
		length := binary.LittleEndian.Uint32(record[atLength:])
		if kept > MaxFrame || length < kept || there > size || sizeOf(int(kept)) > min(there, uint64(len(record))) {
			return f, false, fmt.Errorf("%w: a frame of %d bytes, %d of them kept, at %d", ErrFormat, length, kept, r.read)
		}
		f = Frame{At: time.Unix(0, int64(binary.LittleEndian.Uint64(record[atTime:]))), Sent: binary.LittleEndian.Uint32(record[atSent:]) == 1,
			Length: int(length), Bytes: r.frame[:copy(r.frame, record[recordHeader:recordHeader+kept])]}
		r.release(sizeOf(int(kept)))
		return f, true, nil
	}
}

func (r *Reader) release(n uint64) {
	r.read += n
	atomicmem.Store64(&r.head.read, r.read)
}

// Dropped counts the frames for which there was no room, as the writer says.
func (r *Reader) Dropped() uint64 { return atomic.LoadUint64(&r.head.dropped) }

// Ended reports whether the writer has said that no frame will come any more.
func (r *Reader) Ended() bool { return atomic.LoadUint64(&r.head.ended) != 0 }
