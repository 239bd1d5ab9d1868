package wire

import (
	"cmp"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/wire/internal/ends"
	"github.com/trapeze-nic/trapeze/wire/internal/line"
)

const (
	// DefaultMemoryMTU carries a message of a ring with a page of 8 KiB in one frame, as in the Trapeze papers.
	DefaultMemoryMTU = datasheet.HeaderSize + datasheet.RingMessage + 8<<10
	// DefaultMemoryRing keeps both directions within the second-level cache of
	// an ordinary server (1 MiB or more), next to the data that they carry.
	DefaultMemoryRing = 256 << 10
)

// MemoryOptions are the choices of NewMemory and NewLoopback. The zero value
// is good.
type MemoryOptions struct {
	// MTU is the largest frame in bytes; DefaultMemoryMTU if zero.
	MTU int
	// Ring is the size of the ring of each direction in bytes, rounded up to a
	// power of two that holds at least four of the largest frames;
	// DefaultMemoryRing if zero, at most 1 GiB.
	Ring int
}

func (o *MemoryOptions) complete() error {
	o.MTU, o.Ring = cmp.Or(o.MTU, DefaultMemoryMTU), cmp.Or(o.Ring, DefaultMemoryRing)
	if err := checkMTU(o.MTU); err != nil {
		return err
	}
	if o.Ring < 0 || o.Ring > maxRing {
		return fmt.Errorf("%w: ring of %d bytes is not in 1..%d", ErrOptions, o.Ring, maxRing)
	}
	o.Ring = powerOfTwo(max(o.Ring, 4*o.MTU, minRing))
	return nil
}

// minRing and maxRing bound a ring in bytes.
const (
	minRing = 1 << 12
	maxRing = 1 << 30
)

// powerOfTwo returns the power of two at or above n, which is positive.
func powerOfTwo(n int) int { return 1 << bits.Len(uint(n-1)) }

// Memory is one end of a wire in memory. Sending and receiving take some
// nanoseconds, allocate nothing and make no system call. The two ends may be
// used by one goroutine or by two at the same time.
type Memory struct {
	line.Line
	ends.CreditEnd
	// down is shared by both ends: the link is up while it is zero.
	down *atomic.Uint32
	// plug and end are this end's bits of down: pulled, closed.
	plug, end uint32
	number    *atomic.Uint32 // of the wire, shared by both ends
	peer      *Memory
	link      Hook
}

// These are the bits of down of either end: with a plug out frames wait, and once an end
// is closed they are lost.
const (
	memoryPlugs uint32 = 1 | 4
	memoryEnds  uint32 = 2 | 8
)

// NewMemory makes a wire and returns its two ends.
func NewMemory(o MemoryOptions) (a, b *Memory, err error) {
	if err := o.complete(); err != nil {
		return nil, nil, err
	}
	first, second := newHalf(o.Ring), newHalf(o.Ring)
	to, from := make(ends.Credits, ends.CreditWords), make(ends.Credits, ends.CreditWords)
	a = &Memory{plug: 1, end: 2, down: new(atomic.Uint32), number: newNumber(), CreditEnd: ends.CreditEnd{Receives: to, Sends: from}}
	b = &Memory{plug: 4, end: 8, down: a.down, number: a.number, CreditEnd: ends.CreditEnd{Receives: from, Sends: to}, peer: a}
	a.peer = b
	a.open(first, second, o.MTU)
	b.open(second, first, o.MTU)
	return a, b, nil
}

// NewLoopback makes a wire with one end, at which everything that is sent
// arrives again.
func NewLoopback(o MemoryOptions) (*Memory, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	m := &Memory{down: new(atomic.Uint32), plug: 1, end: 2, number: newNumber(),
		CreditEnd: ends.CreditEnd{Receives: make(ends.Credits, ends.CreditWords)}}
	m.peer, m.Sends = m, m.Receives
	h := newHalf(o.Ring)
	m.open(h, h, o.MTU)
	return m, nil
}

// newHalf makes one direction with a ring of so many bytes.
func newHalf(ring int) line.Half {
	h := line.Lay(line.Aligned(line.Size(ring)), ring)
	h.Prepare()
	return h
}

// open makes the end's line.
func (m *Memory) open(to, from line.Half, mtu int) {
	m.Pair = line.NewPair(to, from, mtu, line.HasBarrier())
	m.Line.Open(line.Options{Owner: m, State: m.down, Gone: memoryEnds, MTU: mtu, Local: true})
}

// newNumber makes a number for a wire.
func newNumber() *atomic.Uint32 {
	n := new(atomic.Uint32)
	n.Store(drawNumber())
	return n
}

// drawNumber draws the number of a wire, which is not zero.
func drawNumber() uint32 { return rand.Uint32() | 1 }

// Wire is zero once an end is closed.
func (m *Memory) Wire() uint32 {
	if m.down.Load()&memoryEnds != 0 {
		return 0
	}
	return m.number.Load()
}

func (m *Memory) Break() { m.number.Store(drawNumber()) }

func (m *Memory) SettleSend() bool { return m.down.Load() == 0 }

// SettleReceive: frames that the other end sent before it was closed still arrive.
func (m *Memory) SettleReceive() bool {
	down := m.down.Load()
	if down&m.end != 0 {
		m.Rx.Discard()
	}
	return down&(memoryPlugs|m.end) == 0
}

func (m *Memory) WakePeer() { m.peer.Wake.Call() }

// Broke cannot be: only this process has the memory.
func (m *Memory) Broke(*line.PeerError) { m.Break() }

// LinkUp reports whether both ends are plugged in.
func (m *Memory) LinkUp() bool { return m.down.Load() == 0 }

// SetWake makes the other end call f for each flush.
func (m *Memory) SetWake(f func()) {
	m.Wake.Set(f)
	if m.SetAsleep(f != nil); f != nil {
		line.Barrier() // a sender that has not seen f has stored its frame
	}
}

func (m *Memory) OnLink(f func()) { m.link.Set(f) }

// SetLink pulls this end's plug or puts it in: either end's takes the link down for both.
func (m *Memory) SetLink(up bool) {
	if up {
		m.down.And(^m.plug)
	} else {
		m.down.Or(m.plug)
	}
	m.tellLink()
	if up {
		// There may be frames that have waited.
		m.Wake.Call()
		m.peer.Wake.Call()
	}
}

func (m *Memory) Close() error {
	m.SetWake(nil)
	m.link.Set(nil)
	if m.down.Or(m.end)&m.end == 0 {
		m.tellLink()
	}
	return nil
}

// tellLink tells both ends that the link may have changed.
func (m *Memory) tellLink() {
	m.link.Call()
	if m.peer != m {
		m.peer.link.Call()
	}
}
