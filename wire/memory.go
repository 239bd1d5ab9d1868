package wire

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/wire/internal/ends"
	"github.com/trapeze-nic/trapeze/wire/internal/shm"
)

const (
	// DefaultMemoryMTU carries 8 KiB of payload: two pages of a message in a
	// frame, and eight frames in a 64 KiB message.
	DefaultMemoryMTU = datasheet.HeaderSize + 8<<10
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
	if o.MTU == 0 {
		o.MTU = DefaultMemoryMTU
	}
	if o.Ring == 0 {
		o.Ring = DefaultMemoryRing
	}
	if err := checkMTU(o.MTU); err != nil {
		return err
	}
	if o.Ring < 0 || o.Ring > maxRing {
		return fmt.Errorf("%w: ring of %d bytes is not in 1..%d", ErrOptions, o.Ring, maxRing)
	}
	o.Ring = powerOfTwo(max(o.Ring, 4*o.MTU, minRing))
	return nil
}

// powerOfTwo returns the power of two at or above n, which is positive.
func powerOfTwo(n int) int { return 1 << bits.Len(uint(n-1)) }

// Memory is one end of a wire in memory. Sending and receiving take some
// nanoseconds, allocate nothing and make no system call. The two ends may be
// used by one goroutine or by two at the same time.
type Memory struct {
	ends.CreditEnd
	line *shm.Local
	mtu  int
	// down is shared by both ends: the link is up while it is zero.
	down *atomic.Uint32
	// plug and end are this end's bits of down: pulled, closed.
	plug, end uint32
	number    *atomic.Uint32 // of the wire, shared by both ends
	taken     uint32         // by the other end, when Receive last found nothing
	peer      *Memory
	wake      Hook
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
	first, second := shm.NewLocal(alignedBytes(shm.LocalSize(o.Ring)), o.Ring, o.MTU)
	down, number := new(atomic.Uint32), newNumber()
	to, from := make(ends.Credits, ends.CreditWords), make(ends.Credits, ends.CreditWords)
	a = &Memory{line: first, mtu: o.MTU, down: down, plug: 1, end: 2, number: number, CreditEnd: ends.CreditEnd{Receives: to, Sends: from}}
	b = &Memory{line: second, mtu: o.MTU, down: down, plug: 4, end: 8, number: number, CreditEnd: ends.CreditEnd{Receives: from, Sends: to}, peer: a}
	a.peer = b
	first.Down, first.Wake, second.Down, second.Wake = down, &b.wake, down, &a.wake
	return a, b, nil
}

// NewLoopback makes a wire with one end, at which everything that is sent
// arrives again.
func NewLoopback(o MemoryOptions) (*Memory, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	m := &Memory{line: shm.NewLoop(alignedBytes(shm.LocalSize(o.Ring)), o.Ring, o.MTU), mtu: o.MTU, down: new(atomic.Uint32), plug: 1, end: 2, number: newNumber(),
		CreditEnd: ends.CreditEnd{Receives: make(ends.Credits, ends.CreditWords)}}
	m.peer, m.Sends = m, m.Receives
	m.line.Down, m.line.Wake = m.down, &m.wake
	return m, nil
}

// newNumber makes a number for a wire.
func newNumber() *atomic.Uint32 {
	n := new(atomic.Uint32)
	n.Store(drawNumber())
	return n
}

// drawNumber draws the number of a wire, which is not zero.
func drawNumber() uint32 { return rand.Uint32() | 1 }

// MTU returns the largest frame in bytes.
func (m *Memory) MTU() int { return m.mtu }

// Checksum returns false: memory does not damage frames.
func (m *Memory) Checksum() bool { return false }

// Wire is described at engine.Lossless. It is zero once an end is closed.
func (m *Memory) Wire() uint32 {
	if m.down.Load()&memoryEnds != 0 {
		return 0
	}
	return m.number.Load()
}

// Break is described at engine.Lossless.
func (m *Memory) Break() { m.number.Store(drawNumber()) }

// Mark is described at engine.Lossless.
func (m *Memory) Mark() uint32 { return m.line.Mark() }

// Taken is described at engine.Lossless.
func (m *Memory) Taken() uint32 { return m.taken }

// Hurry is described at engine.Lossless: Taken lags behind no call.
func (m *Memory) Hurry() {}

// Line is described at engine.Lined.
func (m *Memory) Line() engine.Line { return m.line }

// SendShort is described at engine.Slots.
func (m *Memory) SendShort(h datasheet.ShortHeader, b datasheet.ShortBeside, payload []byte, last bool) bool {
	if m.down.Load() != 0 || len(payload) > m.mtu-datasheet.HeaderSize || !m.line.SendShort(h, b, payload, last) {
		return false
	}
	if last {
		m.line.Flush()
		m.peer.wake.Call()
	}
	return true
}

// Short is described at engine.Slots.
func (m *Memory) Short() (datasheet.ShortHeader, datasheet.ShortBeside, bool) { return m.line.Short() }

// Reserve is described at engine.Port. With a plug out there is no room.
func (m *Memory) Reserve(n int) []byte {
	if uint(n) > uint(m.mtu) || m.down.Load()&memoryPlugs != 0 {
		m.line.Unreserve()
		return nil
	}
	return m.line.Reserve(n)
}

// Commit is described at engine.Port.
func (m *Memory) Commit() {
	switch {
	case m.down.Load()&memoryEnds != 0:
		m.line.Abort()
	case m.line.Open():
		m.line.Finish()
		m.peer.wake.Call()
	default:
		m.line.Commit()
	}
}

// Publish is described at engine.Progressive.
func (m *Memory) Publish(n int) {
	if m.down.Load()&memoryEnds != 0 {
		m.line.Abort()
		return
	}
	if m.line.Show(n) {
		m.peer.wake.Call()
	}
}

// Abort is described at engine.Progressive.
func (m *Memory) Abort() {
	told := m.line.Open()
	m.line.Abort()
	if told {
		m.peer.wake.Call()
	}
}

// Arrived is described at engine.Progressive. A frame that has not arrived whole
// when an end is closed never will.
func (m *Memory) Arrived() (n int, aborted bool) {
	n, aborted = m.line.Progress()
	return n, aborted || !m.line.Whole() && m.down.Load()&memoryEnds != 0
}

// Flush is described at engine.Port.
func (m *Memory) Flush() {
	if m.line.Flush() {
		m.peer.wake.Call()
	}
}

// Receive is described at engine.Port. Frames that the other end sent before it was
// closed still arrive.
func (m *Memory) Receive() []byte {
	if down := m.down.Load(); down != 0 {
		if down&m.end != 0 {
			m.line.Discard()
			return nil
		}
		if down&memoryPlugs != 0 {
			return nil
		}
	}
	sure := m.line.Look(true) // before the look for frames
	f := m.line.Take()
	if f == nil && !m.line.Skipped() {
		m.taken = sure
	}
	return f
}

// Release is described at engine.Port.
func (m *Memory) Release() { m.line.Release() }

// Free is described at engine.Lossless.
func (m *Memory) Free() { m.line.Free() }

// LinkUp reports whether both ends are plugged in.
func (m *Memory) LinkUp() bool { return m.down.Load() == 0 }

// SetWake is described at Port.
func (m *Memory) SetWake(f func()) {
	if m.wake.Set(f); f != nil {
		shm.Fence() // a sender that has not seen f has stored its frame
	}
}

// OnLink is described at Port.
func (m *Memory) OnLink(f func()) { m.link.Set(f) }

// SetLink is described at Port. Either end's plug takes the link down for both.
func (m *Memory) SetLink(up bool) {
	if up {
		m.down.And(^m.plug)
	} else {
		m.down.Or(m.plug)
	}
	m.tellLink()
	if up {
		// There may be frames that have waited.
		m.wake.Call()
		m.peer.wake.Call()
	}
}

// Close is described at Port.
func (m *Memory) Close() error {
	m.wake.Set(nil)
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
