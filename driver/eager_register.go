package driver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// EagerMode says whether and how the device is given the blocks of memory (SPEC.md 9.1).
type EagerMode uint8

const (
	// EagerOff: the memory is ordinary.
	EagerOff EagerMode = iota
	// EagerWritten: the program writes through Memory.Eager, or calls its Push.
	EagerWritten
	// EagerAtPost: a post pushes what the send names, up to 4 KiB of a segment, as it is
	// then. The program writes as it likes, and gains less.
	EagerAtPost
)

// NoRoom says what becomes of a registration for which the device has no memory left.
type NoRoom uint8

const (
	// NoRoomFails: it fails with ErrResource.
	NoRoomFails NoRoom = iota
	// NoRoomOrdinary: the memory is registered as ordinary memory.
	NoRoomOrdinary
	// NoRoomWaits: it waits until there is room or the context ends.
	NoRoomWaits
)

// EagerAttributes of a registration; the zero value is ordinary memory.
type EagerAttributes struct {
	Mode   EagerMode
	NoRoom NoRoom
	// Wide blocks have 128 bytes instead of 64.
	Wide bool
}

const eagerBits = datasheet.AccessEager | datasheet.AccessEagerWide

// access is the rights that ask for eager memory.
func (a EagerAttributes) access() datasheet.Access {
	switch {
	case a.Mode == EagerOff:
		return 0
	case a.Wide:
		return eagerBits
	}
	return datasheet.AccessEager
}

// errNoEager: the device, or the way to it, has no memory for blocks.
var errNoEager = fmt.Errorf("%w: eager memory", descriptors.ErrNotSupported)

// registerAs is register as a.Eager says.
func (n *NIC) registerAs(ctx context.Context, iova uint64, bytes []byte, a MemoryAttributes) (*Memory, error) {
	if a.Eager.Mode == EagerOff {
		return n.register(ctx, iova, bytes, a)
	}
	return eagerly(ctx, n, a.Eager.NoRoom, fieldAccess, func(eager bool) (*Memory, error) {
		if !eager {
			a.Eager = EagerAttributes{}
		}
		return n.register(ctx, iova, bytes, a)
	})
}

// eagerly calls make, which asks the device for something that takes memory for blocks, until
// there is room, or as room says. Without, make has to make something ordinary. field is the one that
// the device refuses for want of room.
func eagerly[T any](ctx context.Context, n *NIC, room NoRoom, field uint16, make func(eager bool) (T, error)) (none T, _ error) {
	supported := n.identity.Features&datasheet.FeatureEager != 0 && n.bar4.mapped.Window(0, 1) != nil
	for pause := time.Millisecond; supported; pause = min(2*pause, 20*time.Millisecond) {
		made, err := make(true)
		switch {
		case !lacksRoom(err, field) || room == NoRoomFails:
			return made, err
		case room == NoRoomWaits:
			// A deregistration makes room, here or in another program's part of the device.
			if err := n.nap(ctx, pause); err != nil {
				return none, err
			}
		default:
			supported = false
		}
	}
	if room != NoRoomOrdinary {
		return none, errNoEager
	}
	n.regions.keep(EagerStats{FellBack: 1})
	return make(false)
}

// lacksRoom reports whether the device has refused memory for blocks.
func lacksRoom(err error, field uint16) bool {
	refused, ok := errors.AsType[*CommandError](err)
	return ok && refused.Result == datasheet.ResultResource && refused.Field == field
}

// nap waits. It fails if ctx ends before, or the NIC is closed.
func (n *NIC) nap(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-n.done:
		return descriptors.ErrClosed
	}
}

// eagerAt makes the writer of m, whose device memory the reply names. It returns false if
// that is not memory of the device.
func (n *NIC) eagerAt(m *Memory, r *datasheet.RegionReply) (*Eager, bool) {
	log2 := uint8(datasheet.EagerLog2)
	if m.attributes.Eager.Wide {
		log2 = datasheet.EagerWideLog2
	}
	if r.BlockLog2 != log2 || r.Blocks%(1<<log2) != 0 || r.Status%4 != 0 {
		return nil, false
	}
	e := n.newEager(m.bytes, m.address)
	e.mode = m.attributes.Eager.Mode
	return e, e.lay(log2, uint64(r.Blocks), uint64(r.Status))
}

// lay gives a writer device memory: blocks of 2^log2 bytes, and their status, at offsets in
// BAR4. It returns false if that is not memory of the device.
func (e *Eager) lay(log2 uint8, blocks, status uint64) bool {
	e.Eager = datasheet.EagerLayout(e.first, uint64(len(e.bytes)), log2)
	e.whole.first, e.whole.end = (e.Lead+1<<log2-1)>>log2, (e.Lead+uint64(len(e.bytes)))>>log2
	window := func(at uint64, size uint64) []byte {
		if size > uint64(e.n.identity.SRAM) {
			return nil
		}
		return e.n.bar4.mapped.Window(at, int(size))
	}
	e.blocks, e.status = window(blocks, e.BlockBytes()), window(status, e.StatusBytes())
	e.words = datasheet.EagerStatusAt(e.status)
	e.valid = make([]uint64, (e.Count+63)/64)
	return e.blocks != nil && e.words != nil
}

// Eager returns the writer of the memory: an io.Writer and io.WriterAt with stores of 1 to 8
// bytes, Push and Flush. Over memory that is not eager, or fell back since the NIC has no
// room, it only stores, so that a program need not know. All calls fail with ErrClosed once
// the memory has been deregistered, and with ErrInvalidParameter outside of it.
//
// Memory that has been pushed is changed through the writer only, or pushed again before it
// is sent: else the NIC sends what it was. What the NIC itself writes there is as any message
// that it receives.
func (m *Memory) Eager() *Eager {
	if e := m.eager.Load(); e != nil {
		return e
	}
	m.eager.CompareAndSwap(nil, m.n.newEager(m.bytes, m.address))
	e := m.eager.Load()
	if m.gone.Load() {
		e.close()
	}
	return e
}

// IsEager reports whether the device has memory for the blocks.
func (m *Memory) IsEager() bool {
	e := m.eager.Load()
	return e != nil && e.blocks != nil
}

// EagerStats are those of all memory that the NIC has and had, and of the tokens of VIs. It asks the NIC, and fails with
// ErrNotSupported on one without eager memory.
func (n *NIC) EagerStats() (EagerStats, error) {
	s := n.eagerCounts()
	free, all, err := n.FreeSRAM()
	if err == nil && all == 0 {
		err = n.Refuse("ask for eager memory", descriptors.ErrNotSupported, "", "the NIC gives out no memory of its own")
	}
	if err != nil {
		return s, err
	}
	counters, err := n.Counters()
	s.FreeSRAM, s.Taken = free, counters[datasheet.CounterEagerBlocks.String()]
	s.Read, s.Refused = counters[datasheet.CounterEagerReads.String()], counters[datasheet.CounterEagerRefused.String()]
	return s, err
}

// eagerCounts are the driver's own counts of that.
func (n *NIC) eagerCounts() EagerStats {
	s := n.regions.counted()
	for _, e := range n.present() {
		if v, ok := e.queues.(*VI); ok {
			s.add(v.send.eagerTokens())
			s.add(v.recv.eagerTokens())
		}
	}
	return s
}

func (t *regionTable) counted() EagerStats {
	t.mu.RLock()
	defer t.mu.RUnlock()
	s := t.retired
	for _, m := range t.m {
		s.add(m.eager.Load().counted())
	}
	return s
}

// keep counts what is of no memory that there is: the tokens of a VI that ends, and a registration
// that found no room on the device.
func (t *regionTable) keep(s EagerStats) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.retired.add(s)
}
