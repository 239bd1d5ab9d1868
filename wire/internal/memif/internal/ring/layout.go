package ring

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/internal/round"
	"github.com/trapeze-nic/trapeze/wire/internal/line"
)

const (
	// ringAlign keeps a ring off the neighbour that amd64 fetches along with a
	// cache line. Rings and buffers are on lines of their own.
	ringAlign = 2 * line.LineSize
	// buffersAlign is a page.
	buffersAlign = 4096
)

// Layout is a client's arrangement of rings and buffers in one region: the rings
// from client to server, those from server to client, then the buffers in the
// same order. VPP and DPDK do the same.
type Layout struct {
	// C2S and S2C are the numbers of rings of each direction.
	C2S, S2C int
	// Log2 is the binary logarithm of the number of descriptors of each ring,
	// at most MaxLog2.
	Log2 uint8
	// Capacity is the size of each buffer in bytes, a multiple of 64.
	Capacity int
	// Apart puts an unused cache line behind each buffer. Without it buffers of
	// 2048 bytes compete for 2 of the 64 sets of a first-level cache; with it a
	// frame in several buffers is never in one piece.
	Apart bool
}

// Check fails with an error that wraps ErrRing if there is no such layout.
func (l Layout) Check() error {
	switch {
	case l.C2S < 1 || l.S2C < 1 || l.C2S > math.MaxUint16 || l.S2C > math.MaxUint16:
		return fmt.Errorf("%w: %d and %d rings", ErrRing, l.C2S, l.S2C)
	case l.Log2 > MaxLog2:
		return fmt.Errorf("%w: 2^%d descriptors, at most 2^%d", ErrRing, l.Log2, MaxLog2)
	case l.Capacity < line.LineSize || l.Capacity > MaxFrame || l.Capacity%line.LineSize != 0:
		return fmt.Errorf("%w: buffers of %d bytes: want a multiple of %d up to %d", ErrRing, l.Capacity, line.LineSize, MaxFrame)
	case l.Size() > math.MaxUint32:
		return fmt.Errorf("%w: %d bytes of memory, offsets have 32 bits", ErrRing, l.Size())
	}
	return nil
}

func (l Layout) stride() uint64 {
	if l.Apart {
		return uint64(l.Capacity) + line.LineSize
	}
	return uint64(l.Capacity)
}

// ringSize is the distance of rings in bytes.
func (l Layout) ringSize() uint64 {
	return round.Up[uint64](HeaderSize+DescriptorSize<<l.Log2, ringAlign)
}

// Size is the size of the region in bytes.
func (l Layout) Size() uint64 { return l.buffers(l.C2S + l.S2C) }

// buffers is where the buffers of a ring begin, in the order of rings.
func (l Layout) buffers(ring int) uint64 {
	return round.Up(uint64(l.C2S+l.S2C)*l.ringSize(), buffersAlign) + uint64(ring)*l.stride()<<l.Log2
}

// number puts the rings of both directions into one order.
func (l Layout) number(c2s bool, index int) int {
	if c2s {
		return index
	}
	return l.C2S + index
}

// Offset is where a ring begins.
func (l Layout) Offset(c2s bool, index int) uint32 {
	return uint32(uint64(l.number(c2s, index)) * l.ringSize())
}

// Format writes all rings into memory, which has Size bytes. No buffers are
// handed out yet, and rings to the client ask for no interrupts. For rings to
// the server that is the server's choice: VPP expects the flags to be 0.
func (l Layout) Format(memory []byte) {
	for n := range l.C2S + l.S2C {
		var s shared
		at := uint64(n) * l.ringSize()
		s.view(memory, at, l.Log2)
		binary.LittleEndian.PutUint32(memory[at:], cookie)
		atomic.StoreUint32(s.tail, 0)
		var flags uint32
		if n >= l.C2S {
			flags = maskInterrupt
		}
		atomic.StoreUint32(s.word, flags)
		for i := range s.descriptors {
			s.descriptors[i] = descriptor{what: uint64(l.Capacity) << 32, where: l.buffers(n) + uint64(i)*l.stride()}
		}
	}
}

// own points s to a ring that the client has laid out.
func (l Layout) own(s *shared, memory, scratch []byte, c2s bool, index int) {
	s.view(memory, uint64(l.Offset(c2s, index)), l.Log2)
	s.regions, s.memory = [][]byte{memory}, memory
	s.own, s.direct = true, true
	s.home = uint32(l.buffers(l.number(c2s, index)))
	s.stride, s.capacity = uint32(l.stride()), uint32(l.Capacity)
	s.setup(scratch)
}

func (s *shared) setup(scratch []byte) {
	s.scratch = scratch[:MaxFrame:MaxFrame]
	s.parts = make([]part, min(int(s.size()), MaxParts))
}

// Scratch returns room for one frame that cannot be used where it is in shared
// memory. All senders of one goroutine may share one, and so may all receivers.
func Scratch() []byte { return line.Aligned(MaxFrame) }

// Sender returns the client's end of a ring from client to server. The layout
// is sound, and memory is formatted.
func (l Layout) Sender(memory, scratch []byte, index int) *Sender {
	s := &Sender{}
	l.own(&s.shared, memory, scratch, true, index)
	s.to = s.size()
	return s
}

// Receiver returns the client's end of a ring from server to client, and hands
// out all buffers: the server must be connected, as DPDK's sets indexes to 0
// when it is.
func (l Layout) Receiver(memory, scratch []byte, index int) *Receiver {
	r := &Receiver{}
	l.own(&r.shared, memory, scratch, false, index)
	r.batch = batchOf(r.size())
	atomic.AddUint32(r.word, r.size()<<16)
	return r
}

// batchOf is the number of descriptors of a ring that are given back at a time: few
// enough that the sender does not run dry, and that it can have all of a small
// ring.
func batchOf(size uint32) uint32 { return max(1, size/8) }

// Place is where a client says that a ring is.
type Place struct {
	Region uint16
	Offset uint32
	Log2   uint8
}

// open points s to a ring in a region of the peer.
func (s *shared) open(regions [][]byte, scratch []byte, at Place, direct bool) error {
	if int(at.Region) >= len(regions) {
		return fmt.Errorf("%w: it is in region %d, there are %d", ErrRing, at.Region, len(regions))
	}
	memory := regions[at.Region]
	switch {
	case at.Log2 > MaxLog2:
		return fmt.Errorf("%w: 2^%d descriptors, at most 2^%d", ErrRing, at.Log2, MaxLog2)
	case at.Offset%Align != 0 || !aligned(memory):
		return fmt.Errorf("%w: offset %#x is not aligned to %d", ErrRing, at.Offset, Align)
	case uint64(at.Offset)+HeaderSize+DescriptorSize<<at.Log2 > uint64(len(memory)):
		return fmt.Errorf("%w: 2^%d descriptors at %#x do not fit into %#x bytes", ErrRing, at.Log2, at.Offset, len(memory))
	}
	if c := binary.LittleEndian.Uint32(memory[at.Offset:]); c != cookie {
		return fmt.Errorf("%w: the cookie at %#x is %#x, want %#x", ErrRing, at.Offset, c, cookie)
	}
	s.view(memory, uint64(at.Offset), at.Log2)
	s.regions, s.direct = regions, direct
	s.from = uint32(uint16(atomic.LoadUint32(s.tail)))
	s.to, s.shown = s.from, s.from
	s.setup(scratch)
	return nil
}

// OpenSender returns the server's end of a ring from server to client. Not
// direct means that frames are copied, so that shared memory is touched only
// while a method of Sender runs. It fails with an error that wraps ErrRing.
func OpenSender(regions [][]byte, scratch []byte, at Place, direct bool) (*Sender, error) {
	s := &Sender{}
	if err := s.open(regions, scratch, at, direct); err != nil {
		return nil, err
	}
	return s, nil
}

// OpenReceiver is OpenSender for a ring from client to server. It asks the
// client for no interrupts.
func OpenReceiver(regions [][]byte, scratch []byte, at Place, direct bool) (*Receiver, error) {
	r := &Receiver{}
	if err := r.open(regions, scratch, at, direct); err != nil {
		return nil, err
	}
	r.batch = batchOf(r.size())
	r.SetInterrupts(false)
	return r, nil
}
