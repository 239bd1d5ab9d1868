package engine

import (
	"math/bits"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/descriptors"
)

// scanSlice is how many doorbell pages in shared memory are looked at in one
// step. Of a host that marks them it is those that it has stored to. Of one that
// does not, every step sees them all if there are no more; else a new doorbell
// waits for its turn, so that a step costs the same for any number.
const scanSlice = 64

// scanAll is up to how many pages each step looks at them rather than at marks,
// which takes one cache line less from a host on another processor.
const scanAll = 4

// cell holds the doorbells of one page that were stored but not yet taken.
type cell struct {
	rung             atomic.Uint32 // bits below
	send, recv       atomic.Uint32
	sendArm, recvArm atomic.Uint32
}

const (
	rungSend    = 1
	rungRecv    = 2
	rungSendArm = 4
	rungRecvArm = 8
)

// bells collects trapped doorbells without a lock: a cell per page, and two
// levels of bitmap that say which cells to look at.
type bells struct {
	cells   []cell
	words   []atomic.Uint64
	summary []atomic.Uint64
}

func newBells(pages int) bells {
	words := (pages + 63) / 64
	return bells{make([]cell, pages), make([]atomic.Uint64, words), make([]atomic.Uint64, (words+63)/64)}
}

// Doorbell takes a 32-bit store at an offset in BAR2 that was trapped. Stores
// where there is no doorbell are counted and ignored. It may be called from any
// goroutine and takes no lock.
func (e *Engine) Doorbell(offset uint64, value uint32) {
	page := offset / descriptors.PageSize
	if page >= uint64(len(e.bells.cells)) {
		e.AddCounter(descriptors.CounterBadDoorbells, 1)
		return
	}
	c := &e.bells.cells[page]
	var rung uint32
	switch offset % descriptors.PageSize {
	case descriptors.DoorbellSend: // also DoorbellCQArm
		c.send.Store(value)
		rung = rungSend
	case descriptors.DoorbellRecv:
		c.recv.Store(value)
		rung = rungRecv
	case descriptors.DoorbellSendArm:
		c.sendArm.Store(value)
		rung = rungSendArm
	case descriptors.DoorbellRecvArm:
		c.recvArm.Store(value)
		rung = rungRecvArm
	default:
		e.AddCounter(descriptors.CounterBadDoorbells, 1)
		return
	}
	c.rung.Or(rung)
	e.bells.words[page/64].Or(1 << (page % 64))
	e.bells.summary[page/4096].Or(1 << (page / 64 % 64))
	e.wakeIfAsleep()
}

// takeTrapped handles every doorbell that Doorbell has collected.
func (e *Engine) takeTrapped() bool {
	any := false
	for s := range e.bells.summary {
		if e.bells.summary[s].Load() == 0 {
			continue
		}
		for sum := e.bells.summary[s].Swap(0); sum != 0; sum &= sum - 1 {
			w := s*64 + bits.TrailingZeros64(sum)
			for word := e.bells.words[w].Swap(0); word != 0; word &= word - 1 {
				e.takeCell(uint32(w*64 + bits.TrailingZeros64(word)))
				any = true
			}
		}
	}
	return any
}

// takeBells looks at the doorbells of one endpoint.
func (e *Engine) takeBells(ep *endpoint) {
	if ep.bell != nil {
		ep.scan(e)
	}
	e.takeCell(ep.id)
}

func (e *Engine) takeCell(page uint32) {
	c := &e.bells.cells[page]
	rung := c.rung.Swap(0)
	if page >= e.limits.Endpoints {
		bad := bits.OnesCount32(rung &^ rungSend)
		if rung&rungSend != 0 && !e.cqs.armCQ(page-e.limits.Endpoints, c.send.Load()) {
			bad++
		}
		e.count(descriptors.CounterBadDoorbells, uint64(bad))
		return
	}
	ep := e.endpoint(page)
	if ep == nil {
		e.count(descriptors.CounterBadDoorbells, uint64(bits.OnesCount32(rung)))
		return
	}
	if rung&rungSend != 0 {
		e.rangSend(ep, c.send.Load())
	}
	if rung&rungRecv != 0 {
		e.rangRecv(ep, c.recv.Load())
	}
	if rung&rungSendArm != 0 {
		e.arm(&ep.send, c.sendArm.Load())
	}
	if rung&rungRecvArm != 0 {
		e.arm(&ep.recv, c.recvArm.Load())
	}
}

// takeMapped looks at doorbell pages in shared memory.
func (e *Engine) takeMapped() bool {
	n := len(e.scanned)
	if n > scanAll && atomic.LoadUint32(e.marks.on) != 0 {
		return e.takeMarked()
	}
	any := false
	for range min(n, scanSlice) {
		if e.scanAt >= n {
			e.scanAt = 0
		}
		any = e.scanned[e.scanAt].scan(e) || any
		e.scanAt++
	}
	return any
}

// scan takes what was stored to the endpoint's page since the last look.
func (ep *endpoint) scan(e *Engine) bool {
	b := ep.bell
	any := false
	if v := atomic.LoadUint32(b.send); v != b.seenSend {
		b.seenSend = v
		e.rangSend(ep, v)
		any = true
	}
	if v := atomic.LoadUint32(b.recv); v != b.seenRecv {
		b.seenRecv = v
		e.rangRecv(ep, v)
		any = true
	}
	if atomic.LoadUint32(b.sendArm) != 0 {
		e.arm(&ep.send, atomic.SwapUint32(b.sendArm, 0))
		any = true
	}
	if atomic.LoadUint32(b.recvArm) != 0 {
		e.arm(&ep.recv, atomic.SwapUint32(b.recvArm, 0))
		any = true
	}
	return any
}

// scan takes an arm word that was stored to the queue's page.
func (cq *completionQueue) scan(e *Engine) bool {
	if atomic.LoadUint32(cq.bell) == 0 {
		return false
	}
	e.cqs.armCQ(cq.id, atomic.SwapUint32(cq.bell, 0))
	return true
}

// scanner is a doorbell page in shared memory that is in use: scan takes what
// was stored there, silence makes it read zero.
type scanner interface {
	scan(e *Engine) bool
	silence()
}

func (ep *endpoint) silence() {
	for _, p := range []*uint32{ep.bell.send, ep.bell.recv, ep.bell.sendArm, ep.bell.recvArm} {
		atomic.StoreUint32(p, 0)
	}
}

func (cq *completionQueue) silence() { atomic.StoreUint32(cq.bell, 0) }

// doorbellPage is the doorbells of an endpoint in shared memory. seenSend and
// seenRecv are the values found at the last look.
type doorbellPage struct {
	send, recv, sendArm, recvArm *uint32
	seenSend, seenRecv           uint32
}

// MapDoorbells makes bar, the memory of BAR2, the place where the engine looks
// for doorbells. Call it before the first endpoint exists. It returns false if
// bar is too small or not aligned to a page.
func (e *Engine) MapDoorbells(bar []byte) bool {
	if uint64(len(bar)) < uint64(e.limits.Endpoints+e.limits.CQs)*descriptors.PageSize || descriptors.IndexAt(bar) == nil {
		return false
	}
	e.bar = bar
	e.marks = e.newMarks()
	return true
}

func (e *Engine) doorbellAt(offset uint64) *uint32 { return descriptors.IndexAt(e.bar[offset:]) }

// mapEndpoint begins to look at the page of a new endpoint, which then reads
// zero.
func (e *Engine) mapEndpoint(ep *endpoint) {
	if e.bar == nil {
		return
	}
	page := descriptors.EndpointPage(ep.id)
	ep.bell = &doorbellPage{
		send: e.doorbellAt(page + descriptors.DoorbellSend), recv: e.doorbellAt(page + descriptors.DoorbellRecv),
		sendArm: e.doorbellAt(page + descriptors.DoorbellSendArm), recvArm: e.doorbellAt(page + descriptors.DoorbellRecvArm),
	}
	ep.silence()
	e.scanned = append(e.scanned, ep)
}

// mapCQBell is mapEndpoint for a completion queue that can interrupt.
func (e *Engine) mapCQBell(cq *completionQueue) {
	if e.bar == nil || cq.vector == descriptors.NoVector {
		return
	}
	cq.bell = e.doorbellAt(descriptors.CQPage(e.limits.Endpoints, cq.id) + descriptors.DoorbellCQArm)
	cq.silence()
	e.scanned = append(e.scanned, cq)
}

// unmapBell ends what mapEndpoint or mapCQBell began.
func (e *Engine) unmapBell(s scanner) {
	for i := range e.scanned {
		if e.scanned[i] == s {
			last := len(e.scanned) - 1
			e.scanned[i] = e.scanned[last]
			e.scanned[last] = nil
			e.scanned = e.scanned[:last]
			return
		}
	}
}

// rang checks a producer index that the host stored.
func (e *Engine) rang(ep *endpoint, q *workQueue, value uint32) bool {
	// Going backwards would take posted descriptors back.
	if value-q.completed > q.depth() || int32(value-q.producer) < 0 {
		e.count(descriptors.CounterBadDoorbells, 1)
		e.event(descriptors.Event{Code: descriptors.EventVIOverrun, Endpoint: ep.id, CQ: descriptors.NoCQ, Detail: value})
		return false
	}
	q.producer = value
	return true
}

func (e *Engine) rangSend(ep *endpoint, value uint32) {
	if !e.rang(ep, &ep.send, value) {
		return
	}
	if ep.state == descriptors.StateConnected {
		e.makeReady(ep)
		return
	}
	e.flushSends(ep, descriptors.StatusFlushed)
}

func (e *Engine) rangRecv(ep *endpoint, value uint32) {
	if !e.rang(ep, &ep.recv, value) {
		return
	}
	switch ep.state {
	case descriptors.StateError:
		e.flushReceives(ep)
	case descriptors.StateConnected:
		if ep.rel != nil {
			e.offerCredit(ep)
			e.refresh(ep)
		}
	}
}

// arm takes an arm word of one of an endpoint's queues.
func (e *Engine) arm(q *workQueue, word uint32) {
	if !e.cqs.arm(q, word) {
		e.count(descriptors.CounterBadDoorbells, 1)
	}
}
