package ring

import (
	"errors"
	"fmt"
	"sync/atomic"
)

const (
	// HeaderSize and DescriptorSize are sizes in bytes (memif_ring_t and
	// memif_desc_t).
	HeaderSize     = 128
	DescriptorSize = 16
	// MaxLog2 bounds rings to 16384 descriptors: DPDK's and VPP's bound, and
	// small enough for 16-bit indexes.
	MaxLog2 = 14
	// MaxFrame is the longest frame in bytes: no NIC has longer ones.
	MaxFrame = 1 << 16
	// MaxParts is the number of buffers that a frame may have. It bounds the work that a
	// peer can make with one frame.
	MaxParts = 1024
	// Align is the alignment in bytes of frames that are handed out, and of
	// rings in their memory.
	Align = 8
)

const (
	// cookie marks a ring (MEMIF_COOKIE).
	cookie = 0x3E31F20
	// maskInterrupt in a ring's flags asks for no interrupts
	// (MEMIF_RING_FLAG_MASK_INT).
	maskInterrupt = 1
	// next in a descriptor's flags: the frame goes on (MEMIF_DESC_FLAG_NEXT).
	next = 1
)

// ErrRing is wrapped by errors about a ring that cannot be where the peer says.
var ErrRing = errors.New("bad ring")

// Violation is a peer's breach of a ring's rules. What it wrote is not used, and
// nothing more goes through the ring.
type Violation struct {
	// Field names the wrong field, and Value has what the peer wrote.
	Field string
	Value uint64
	Why   string
}

func (v *Violation) Error() string {
	return fmt.Sprintf("memif ring: %s is %#x: %s", v.Field, v.Value, v.Why)
}

// descriptor is one of memory that is shared: its words are loaded once each,
// and then checked.
type descriptor struct {
	// what is flags (16 bits), region (16) and length (32).
	what uint64
	// where is offset (32) and metadata (32), which are not used.
	where uint64
}

// part is a buffer: a checked copy of a descriptor.
type part struct {
	region uint16
	last   bool
	length uint32
	offset uint32
}

// shared is the common part of Sender and Receiver.
type shared struct {
	// word is flags (16 bits) and head (16).
	word *uint32
	// tail is the tail (16 bits) and padding.
	tail        *uint32
	descriptors []descriptor
	// regions are the memory in which buffers may be.
	regions [][]byte
	// own: we are the client and have laid this ring out. Buffers are at home,
	// in memory, which is region 0, stride bytes apart and capacity bytes long,
	// whatever the descriptors say by now.
	own      bool
	memory   []byte
	home     uint32
	stride   uint32
	capacity uint32
	// direct: frames may be used where they are in shared memory.
	direct bool

	mask uint32
	// from is the first descriptor that is ours to use, as a free-running
	// number, and to the first that is not, as last looked at.
	from, to uint32
	// shown is from as the peer knows it.
	shown uint32

	scratch   []byte
	parts     []part
	violation *Violation
}

// Violation returns why the ring is not used any more, nil if it is.
func (s *shared) Violation() *Violation { return s.violation }

func (s *shared) size() uint32 { return s.mask + 1 }

// fail notes what the peer has done and ends the use of the ring.
func (s *shared) fail(field string, value uint64, why string) {
	if s.violation == nil {
		s.violation = &Violation{field, value, why}
	}
	s.to = s.from
}

// theirs returns the peer's index.
func (s *shared) theirs() uint16 {
	if s.own {
		return uint16(atomic.LoadUint32(s.tail))
	}
	return uint16(atomic.LoadUint32(s.word) >> 16)
}

// publish adds n to our index. It is also a full barrier: the flags are read
// after it, so that of a sender that publishes and a receiver that asks for an
// interrupt at the same time one sees what the other did.
func (s *shared) publish(n uint32) {
	s.shown += n
	if s.own {
		// Head shares its word with flags, which the server writes.
		atomic.AddUint32(s.word, n<<16)
		return
	}
	atomic.StoreUint32(s.tail, uint32(uint16(s.shown)))
}

// extend moves to on to what the peer has published, ahead descriptors beyond
// its index, and reports whether that was any.
func (s *shared) extend(ahead uint32) bool {
	if s.violation != nil {
		return false
	}
	index := s.theirs()
	n := uint32(index + uint16(ahead) - uint16(s.to))
	if n == 0 {
		return false
	}
	// Both indexes are within a ring of each other. One that goes back seems to
	// go far ahead.
	if to := s.to + n; to-s.shown > s.size() {
		s.fail("index", uint64(index), "it has jumped")
		return false
	}
	s.to += n
	return true
}

// part returns a checked copy of descriptor i.
func (s *shared) part(i uint32) (part, bool) {
	d := &s.descriptors[i&s.mask]
	what := atomic.LoadUint64(&d.what)
	p := part{region: uint16(what >> 16), last: what&next == 0, length: uint32(what >> 32)}
	if s.own {
		p.region, p.offset = 0, s.home+(i&s.mask)*s.stride
		if p.length > s.capacity {
			s.fail("descriptor length", uint64(p.length), "the buffer is shorter")
			return p, false
		}
		return p, true
	}
	p.offset = uint32(atomic.LoadUint64(&d.where))
	if int(p.region) >= len(s.regions) {
		s.fail("descriptor region", uint64(p.region), "there is no such region")
		return p, false
	}
	if uint64(p.offset)+uint64(p.length) > uint64(len(s.regions[p.region])) {
		s.fail("descriptor end", uint64(p.offset)+uint64(p.length), "it is outside the region")
		return p, false
	}
	return p, true
}

// bytes returns n bytes of a buffer.
func (s *shared) bytes(p part, n uint32) []byte {
	return s.regions[p.region][p.offset : uint64(p.offset)+uint64(n) : uint64(p.offset)+uint64(n)]
}

// follows reports whether buffer q is right behind p, all of which is used.
func follows(p, q part) bool {
	return p.region == q.region && uint64(p.offset)+uint64(p.length) == uint64(q.offset)
}

// wantsInterrupt reports whether the peer has not asked for no interrupts.
func (s *shared) wantsInterrupt() bool { return atomic.LoadUint32(s.word)&maskInterrupt == 0 }
