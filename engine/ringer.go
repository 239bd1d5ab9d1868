package engine

import (
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/engine/internal/core"
	"github.com/trapeze-nic/trapeze/engine/internal/vi"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// Doorbell takes a 32-bit store at an offset in BAR2 that was trapped. Stores
// where there is no doorbell are counted and ignored. It may be called from any
// goroutine and takes no lock.
func (e *Engine) Doorbell(offset uint64, value uint32) {
	page, b, ok := e.Bells.Find(offset)
	if !ok {
		if !e.Bells.RingChannel(offset, value) {
			e.AddCounter(datasheet.CounterBadDoorbells, 1)
			return
		}
		e.Wake()
		return
	}
	e.Bells.Ring(page, b, value)
	e.Wake()
}

// Ringer returns a function that does what Doorbell does for the offset, nil if there is
// no doorbell. If no step is under way, the store is taken during the call, and the
// next step need not look for it. It is for hosts that step the engine themselves, with
// doorbells that are not in shared memory.
func (e *Engine) Ringer(offset uint64) func(value uint32) {
	page, b, ok := e.Bells.Find(offset)
	if !ok {
		return e.channelRinger(offset)
	}
	return func(value uint32) {
		if !e.mu.TryLock() {
			e.Bells.Ring(page, b, value)
			e.Wake()
			return
		}
		e.ring(page, b, value)
		e.mu.Unlock()
	}
}

// ring takes what was stored to a doorbell, and sends what it can.
func (e *Engine) ring(page uint32, b core.Bell, value uint32) {
	if e.Bells.Cells[page].Rung.Load() != 0 {
		e.Bells.TakeCell(page) // what was stored before
	}
	e.rang(page, b, value)
	e.sendReady()
}

// sendReady sends what is ready at once, as the peer waits.
func (e *Engine) sendReady() {
	if e.Events&(core.OnReady|core.Suspended) == core.OnReady {
		e.Tx.Transmit()
		e.Tx.Flush()
	}
	if e.DirectOps >= vi.DirectPerRound {
		e.round(&e.None) // a host that finds all complete at once does not step the engine
	}
}

// PathHost has the calls by which the host of paths steps the engine: step does a round, up to a completion of an endpoint's receives or
// sends. Wake ends the sleep of those that wait, and Guard runs what may touch memory that is gone, as gate says.
type PathHost struct {
	Gate  *atomic.Uint32
	Step  func(endpoint uint32, receive bool) bool
	Wake  func()
	Guard func(f func())
}

// Path returns the way into the engine of a VI or a ring, nil of other endpoints. It is for hosts
// that step the engine themselves, with doorbells that are not in shared memory.
func (e *Engine) Path(endpoint uint32, h PathHost) *vi.Path {
	e.mu.Lock()
	defer e.mu.Unlock()
	ep := e.Endpoint(endpoint)
	if ep == nil || ep.KindID != datasheet.KindVI && ep.KindID != datasheet.KindRing {
		return nil
	}
	step := func(receive, send bool) bool {
		if !receive && !send {
			return h.Step(0, false)
		}
		return h.Step(endpoint, receive)
	}
	p := e.vis.PathOf(ep)
	p.SetHost(vi.Host{Mu: &e.mu, Gate: h.Gate, Step: step, Wake: h.Wake, Guard: h.Guard, Ring: func(b core.Bell, value uint32, stored bool) {
		switch {
		case stored:
			e.Bells.Ring(endpoint, b+ep.Bells, value)
			e.Wake()
		case e.Events&core.OnAcks != 0 && b == core.BellRecv && ep.Recv.Producer == value:
			e.round(&e.None) // the peer waits for credit
		default:
			e.ring(endpoint, b+ep.Bells, value)
		}
	}})
	return p
}

// CQPath is Path for a completion queue.
func (e *Engine) CQPath(cq uint32, h PathHost) *vi.CQPath {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.vis.CQPathOf(cq)
	if p != nil {
		p.Host = vi.Host{Mu: &e.mu, Gate: h.Gate, Step: func(bool, bool) bool { return h.Step(0, false) }, Guard: h.Guard}
	}
	return p
}

func (e *Engine) ReadDirect(endpoint, handle uint32, address uint64, into uint32, at uint64, n uint32) bool {
	if !e.mu.TryLock() {
		return false
	}
	defer e.mu.Unlock()
	ep := e.Endpoint(endpoint)
	if ep == nil || ep.State != datasheet.StateConnected || e.Events&core.Suspended != 0 || e.Bells.Cells[endpoint].Rung.Load() != 0 ||
		!e.vis.ReadDirect(ep, core.Segment{Handle: handle, Address: address, Length: n}, core.Segment{Handle: into, Address: at, Length: n}) {
		return false
	}
	if e.DirectOps >= vi.DirectPerRound {
		e.round(&e.None)
	}
	return true
}

// MapDoorbells makes bar, the memory of BAR2, the place where the engine looks
// for doorbells. Call it before the first endpoint exists. It returns false if
// bar is too small or not aligned to a page.
func (e *Engine) MapDoorbells(bar []byte) bool { return e.Bells.Share(bar) }

// rang takes what was stored to a doorbell.
func (e *Engine) rang(page uint32, b core.Bell, value uint32) {
	ep := e.Endpoint(page)
	sound := true
	switch {
	case page >= e.Limits.Endpoints:
		sound = b == core.BellSend && e.CQs.ArmCQ(page-e.Limits.Endpoints, value)
	case ep == nil, uint8(b-ep.Bells) >= uint8(core.BellRing):
		sound = false
	case b%core.BellRing == core.BellSend:
		if e.advance(ep, &ep.Send, value) {
			if ep.State == datasheet.StateConnected {
				e.Ready.Add(ep)
			} else {
				e.Conns.FlushSends(ep, datasheet.StatusFlushed)
			}
		}
	case b%core.BellRing == core.BellRecv && ep.Recv.Source != nil:
		sound = false // it has no receive queue of its own
	case b%core.BellRing == core.BellRecv:
		if e.advance(ep, &ep.Recv, value) {
			if ep.State == datasheet.StateError {
				e.Conns.FlushPosted(ep, &ep.Recv)
			} else {
				ep.Delivery.Posted(ep)
			}
		}
	case b%core.BellRing == core.BellSendArm:
		sound = e.CQs.Arm(&ep.Send, value)
	default:
		sound = e.CQs.Arm(&ep.Recv, value)
	}
	if !sound {
		e.Count(datasheet.CounterBadDoorbells, 1)
	}
}

// advance takes a producer index that the host stored, if it can be.
func (e *Engine) advance(ep *core.Endpoint, q *core.WorkQueue, value uint32) bool {
	// Going backwards would take posted descriptors back.
	if value-q.Completed > q.Mask+1 || int32(value-q.Producer) < 0 {
		e.Count(datasheet.CounterBadDoorbells, 1)
		e.Event(datasheet.Event{Code: datasheet.EventVIOverrun, Endpoint: ep.ID, CQ: datasheet.NoCQ, Detail: value})
		return false
	}
	q.Producer = value
	return true
}

// channelRinger is Ringer for the doorbells of a channel. All words of a priority ring the
// same: the first is as good as any.
func (e *Engine) channelRinger(offset uint64) func(value uint32) {
	page, which, slot, ok := e.Bells.FindChannel(offset)
	if !ok {
		return nil
	}
	base := offset - 4*uint64(slot)
	// The caller rings one at a time. What cannot be taken at once goes where the engine
	// looks next: there is no other writer.
	return func(value uint32) {
		b := e.Bells.Cells[page].Channel.Load()
		if b == nil || value&datasheet.ChannelRung == 0 {
			e.AddCounter(datasheet.CounterBadDoorbells, 1)
			return
		}
		if !e.mu.TryLock() {
			e.Bells.RingChannel(base+4*uint64(slot), value)
			if which != core.BellReceive {
				slot = (slot + 1) % datasheet.ChannelDepth
			}
			e.Wake()
			return
		}
		e.Bells.TakeChannel(page, b) // what was stored before
		if which != core.BellReceive {
			slot = b.Next[which]
		}
		e.cells.Rang(page, which, value)
		if e.Events&core.OnCells != 0 {
			// At once, as the peer waits; what is urgent does not wait for bulk that does.
			if which == core.ChannelBell(datasheet.PriorityLow) {
				e.cells.Run()
			} else {
				e.cells.RunUpTo(0)
			}
			e.Tx.Flush()
		}
		e.mu.Unlock()
	}
}
