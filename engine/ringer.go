package engine

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// Doorbell takes a 32-bit store at an offset in BAR2 that was trapped. Stores
// where there is no doorbell are counted and ignored. It may be called from any
// goroutine and takes no lock.
func (e *Engine) Doorbell(offset uint64, value uint32) {
	page, b, ok := e.core.bells.find(offset)
	if !ok {
		if !e.core.bells.ringChannel(offset, value) {
			e.AddCounter(datasheet.CounterBadDoorbells, 1)
			return
		}
		e.Wake()
		return
	}
	e.core.bells.ring(page, b, value)
	e.Wake()
}

// Ringer returns a function that does what Doorbell does for the offset, nil if there is
// no doorbell. If nobody is in the engine, the store is taken during the call, and the
// next step need not look for it. It is for hosts that step the engine themselves, with
// doorbells that are not in shared memory.
func (e *Engine) Ringer(offset uint64) func(value uint32) {
	page, b, ok := e.core.bells.find(offset)
	if !ok {
		return e.channelRinger(offset)
	}
	lane := sendLane{&e.core.tx}
	return func(value uint32) {
		if !e.mu.TryLock() {
			e.core.bells.ring(page, b, value)
			e.Wake()
			return
		}
		if e.core.bells.cells[page].rung.Load() != 0 {
			e.core.bells.takeCell(page) // what was stored before
		}
		if ep := e.core.endpoint(page); b == bellSend && ep != nil && ep.bells == bellSend && ep.state == datasheet.StateConnected {
			if e.advance(ep, &ep.send, value) {
				for n := transmitQuantum; n > 0 && lane.lane(ep); n-- {
				}
				if e.core.tx.flush(); ep.send.posted() > 0 {
					e.core.ready.add(ep)
				}
			}
		} else {
			e.rang(page, b, value)
		}
		if e.core.events&(onReady|suspended) == onReady {
			e.core.tx.transmit() // at once, as the peer waits
			e.core.tx.flush()
			if e.core.carried >= carriedPerRound {
				e.round() // a host that finds all complete at once does not step the engine
			}
		}
		e.mu.Unlock()
	}
}

// MapDoorbells makes bar, the memory of BAR2, the place where the engine looks
// for doorbells. Call it before the first endpoint exists. It returns false if
// bar is too small or not aligned to a page.
func (e *Engine) MapDoorbells(bar []byte) bool { return e.core.bells.share(bar) }

// rang takes what was stored to a doorbell.
func (e *Engine) rang(page uint32, b bell, value uint32) {
	ep := e.core.endpoint(page)
	sound := true
	switch {
	case page >= e.core.limits.Endpoints:
		sound = b == bellSend && e.core.cqs.armCQ(page-e.core.limits.Endpoints, value)
	case ep == nil, uint8(b-ep.bells) >= uint8(bellRing):
		sound = false
	case b%bellRing == bellSend:
		if e.advance(ep, &ep.send, value) {
			if ep.state == datasheet.StateConnected {
				e.core.ready.add(ep)
			} else {
				e.core.conns.flushSends(ep, datasheet.StatusFlushed)
			}
		}
	case b%bellRing == bellRecv && ep.recv.source != nil:
		sound = false // it has no receive queue of its own
	case b%bellRing == bellRecv:
		if e.advance(ep, &ep.recv, value) {
			if ep.state == datasheet.StateError {
				e.core.conns.flushPosted(ep, &ep.recv)
			} else {
				ep.delivery.posted(ep)
			}
		}
	case b%bellRing == bellSendArm:
		sound = e.core.cqs.arm(&ep.send, value)
	default:
		sound = e.core.cqs.arm(&ep.recv, value)
	}
	if !sound {
		e.core.count(datasheet.CounterBadDoorbells, 1)
	}
}

// advance takes a producer index that the host stored, if it can be.
func (e *Engine) advance(ep *endpoint, q *workQueue, value uint32) bool {
	// Going backwards would take posted descriptors back.
	if value-q.completed > q.mask+1 || int32(value-q.producer) < 0 {
		e.core.count(datasheet.CounterBadDoorbells, 1)
		e.core.event(datasheet.Event{Code: datasheet.EventVIOverrun, Endpoint: ep.id, CQ: datasheet.NoCQ, Detail: value})
		return false
	}
	q.producer = value
	return true
}

// channelRinger is Ringer for the doorbells of a channel. All words of a priority ring the
// same: the first is as good as any.
func (e *Engine) channelRinger(offset uint64) func(value uint32) {
	page, which, slot, ok := e.core.bells.findChannel(offset)
	if !ok {
		return nil
	}
	base := offset - 4*uint64(slot)
	// The caller rings one at a time. What cannot be taken at once goes where the engine
	// looks next: nobody else stores there.
	return func(value uint32) {
		b := e.core.bells.cells[page].channel.Load()
		if b == nil || value&datasheet.ChannelRung == 0 {
			e.AddCounter(datasheet.CounterBadDoorbells, 1)
			return
		}
		if !e.mu.TryLock() {
			e.core.bells.ringChannel(base+4*uint64(slot), value)
			if which != bellReceive {
				slot = (slot + 1) % datasheet.ChannelDepth
			}
			e.Wake()
			return
		}
		e.core.bells.takeChannel(page, b) // what was stored before
		if which != bellReceive {
			slot = b.next[which]
		}
		e.cells.rang(page, which, value)
		if e.core.events&onCells != 0 {
			// At once, as the peer waits; what is urgent does not wait for bulk that does.
			if which == channelBell(datasheet.PriorityLow) {
				e.cells.run()
			} else {
				e.cells.runUpTo(0)
			}
			e.core.tx.flush()
		}
		e.mu.Unlock()
	}
}
