package engine

import (
	"math/bits"
	"slices"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/descriptors"
)

// scanSlice is how many doorbell pages in shared memory are looked at in one
// step. If the host marks the pages that it stores to, only those are looked at. If
// it does not, a step looks at all pages if there are no more than this; else a new
// doorbell waits for its turn, so that a step costs the same for any number.
const scanSlice = 64

// scanAll is up to how many pages each step looks at them rather than at marks,
// which takes one cache line less from a host on another processor.
const scanAll = 4

// doorbells finds what the host has stored to the pages of BAR2: trapped stores are
// collected without a lock, in a cell per page with two levels of bitmap that say
// which to look at; in shared memory it looks.
type doorbells struct {
	// rang is told of what is new on a page.
	rang      func(page uint32, r rung)
	endpoints uint32 // the pages below are endpoints', the others completion queues'

	cells   []cell
	words   []atomic.Uint64
	summary []atomic.Uint64

	bar    []byte        // nil: all stores are trapped
	mapped []*mappedPage // that are in use
	scanAt int
	marks  marks // where the host says to which it has stored
}

// rung is what was stored to a page: the doorbells in set, of the bits below. A
// completion queue's arm doorbell is where an endpoint's send doorbell is.
type rung struct {
	set                          uint32
	send, recv, sendArm, recvArm uint32
}

const (
	rungSend = 1 << iota
	rungRecv
	rungSendArm
	rungRecvArm
)

// bellOffsets are where the doorbells are in a page, by the bits above.
var bellOffsets = [...]uint64{descriptors.DoorbellSend, descriptors.DoorbellRecv, descriptors.DoorbellSendArm, descriptors.DoorbellRecvArm}

// cell holds the doorbells of one page that were stored but not yet taken.
type cell struct {
	rung   atomic.Uint32                   // bits as in rung
	values [len(bellOffsets)]atomic.Uint32 // by bit
	mapped *mappedPage                     // nil: not looked at
}

// mappedPage is a doorbell page in shared memory. Doorbells that it does not have
// are nil, a completion queue's is sendArm; seenSend and seenRecv are the values found at the last look.
type mappedPage struct {
	number             uint32
	send, recv         *uint32
	sendArm, recvArm   *uint32
	seenSend, seenRecv uint32
}

func newDoorbells(endpoints, cqs uint32, rang func(uint32, rung)) doorbells {
	pages := int(endpoints + cqs)
	words := (pages + 63) / 64
	return doorbells{rang: rang, endpoints: endpoints, cells: make([]cell, pages),
		words: make([]atomic.Uint64, words), summary: make([]atomic.Uint64, (words+63)/64)}
}

// clear forgets what was stored, and closes all pages.
func (d *doorbells) clear() {
	for i := range d.cells {
		d.cells[i].rung.Store(0)
		d.cells[i].mapped = nil
	}
	for _, p := range d.mapped {
		p.reset()
	}
	d.mapped, d.scanAt = nil, 0
	if d.bar != nil {
		d.clearMarks()
	}
}

// ring takes a 32-bit store at an offset in BAR2 that was trapped. It returns false
// if there is no doorbell. It may be called from any goroutine.
func (d *doorbells) ring(offset uint64, value uint32) bool {
	page := offset / descriptors.PageSize
	if page >= uint64(len(d.cells)) {
		return false
	}
	bell := slices.Index(bellOffsets[:], offset%descriptors.PageSize)
	if bell < 0 {
		return false
	}
	c := &d.cells[page]
	c.values[bell].Store(value)
	c.rung.Or(1 << bell)
	d.words[page/64].Or(1 << (page % 64))
	d.summary[page/4096].Or(1 << (page / 64 % 64))
	return true
}

// take reports what is new, and whether there was anything.
func (d *doorbells) take() bool {
	any := false
	for s := range d.summary {
		if d.summary[s].Load() == 0 {
			continue
		}
		for sum := d.summary[s].Swap(0); sum != 0; sum &= sum - 1 {
			w := s*64 + bits.TrailingZeros64(sum)
			for word := d.words[w].Swap(0); word != 0; word &= word - 1 {
				d.takeCell(uint32(w*64 + bits.TrailingZeros64(word)))
				any = true
			}
		}
	}
	n := len(d.mapped)
	if n > scanAll && atomic.LoadUint32(d.marks.on) != 0 {
		return d.takeMarked() || any
	}
	for range min(n, scanSlice) {
		if d.scanAt >= n {
			d.scanAt = 0
		}
		any = d.look(d.mapped[d.scanAt]) || any
		d.scanAt++
	}
	return any
}

// takePage reports what is new on one page.
func (d *doorbells) takePage(page uint32) {
	if p := d.cells[page].mapped; p != nil {
		d.look(p)
	}
	d.takeCell(page)
}

// takeCell reports the stores to a page that were trapped.
func (d *doorbells) takeCell(page uint32) {
	c := &d.cells[page]
	if set := c.rung.Swap(0); set != 0 {
		d.rang(page, rung{set, c.values[0].Load(), c.values[1].Load(), c.values[2].Load(), c.values[3].Load()})
	}
}

// look reports what was stored to a page in shared memory since the last look.
func (d *doorbells) look(p *mappedPage) bool {
	var r rung
	if p.send == nil { // a completion queue's
		if atomic.LoadUint32(p.sendArm) == 0 {
			return false
		}
		d.rang(p.number, rung{set: rungSend, send: atomic.SwapUint32(p.sendArm, 0)})
		return true
	}
	if r.send = atomic.LoadUint32(p.send); r.send != p.seenSend {
		p.seenSend = r.send
		r.set = rungSend
	}
	if r.recv = atomic.LoadUint32(p.recv); r.recv != p.seenRecv {
		p.seenRecv = r.recv
		r.set |= rungRecv
	}
	if atomic.LoadUint32(p.sendArm) != 0 {
		r.sendArm = atomic.SwapUint32(p.sendArm, 0)
		r.set |= rungSendArm
	}
	if atomic.LoadUint32(p.recvArm) != 0 {
		r.recvArm = atomic.SwapUint32(p.recvArm, 0)
		r.set |= rungRecvArm
	}
	if r.set == 0 {
		return false
	}
	d.rang(p.number, r)
	return true
}

// reset makes a page read zero.
func (p *mappedPage) reset() {
	for _, w := range []*uint32{p.send, p.recv, p.sendArm, p.recvArm} {
		if w != nil {
			atomic.StoreUint32(w, 0)
		}
	}
}

// share makes bar, the memory of BAR2, the place to look at from now on. It returns
// false if bar is too small or not aligned to a page.
func (d *doorbells) share(bar []byte) bool {
	if uint64(len(bar)) < uint64(len(d.cells))*descriptors.PageSize || descriptors.IndexAt(bar) == nil {
		return false
	}
	d.bar = bar
	d.marks = d.newMarks()
	return true
}

func (d *doorbells) word(offset uint64) *uint32 { return descriptors.IndexAt(d.bar[offset:]) }

// open begins with the page of a new endpoint or completion queue: what was stored
// there before counts no more. One that looks is looked at in shared memory.
func (d *doorbells) open(page uint32, looks bool) {
	c := &d.cells[page]
	c.rung.Store(0)
	if d.bar == nil || !looks {
		return
	}
	at := uint64(page) * descriptors.PageSize
	p := &mappedPage{number: page}
	if page < d.endpoints {
		p.send, p.recv = d.word(at+descriptors.DoorbellSend), d.word(at+descriptors.DoorbellRecv)
		p.sendArm, p.recvArm = d.word(at+descriptors.DoorbellSendArm), d.word(at+descriptors.DoorbellRecvArm)
	} else {
		p.sendArm = d.word(at + descriptors.DoorbellCQArm)
	}
	p.reset()
	c.mapped = p
	d.mapped = append(d.mapped, p)
}

// close ends what open began.
func (d *doorbells) close(page uint32) {
	c := &d.cells[page]
	d.mapped = slices.DeleteFunc(d.mapped, func(p *mappedPage) bool { return p == c.mapped })
	c.mapped = nil
}

// Doorbell takes a 32-bit store at an offset in BAR2 that was trapped. Stores
// where there is no doorbell are counted and ignored. It may be called from any
// goroutine and takes no lock.
func (e *Engine) Doorbell(offset uint64, value uint32) {
	if !e.bells.ring(offset, value) {
		e.AddCounter(descriptors.CounterBadDoorbells, 1)
		return
	}
	e.Wake()
}

// MapDoorbells makes bar, the memory of BAR2, the place where the engine looks
// for doorbells. Call it before the first endpoint exists. It returns false if
// bar is too small or not aligned to a page.
func (e *Engine) MapDoorbells(bar []byte) bool { return e.bells.share(bar) }

// rang takes what was stored to a doorbell page.
func (e *Engine) rang(page uint32, r rung) {
	if page >= e.limits.Endpoints {
		bad := bits.OnesCount32(r.set &^ rungSend)
		if r.set&rungSend != 0 && !e.cqs.armCQ(page-e.limits.Endpoints, r.send) {
			bad++
		}
		e.count(descriptors.CounterBadDoorbells, uint64(bad))
		return
	}
	ep := e.endpoint(page)
	if ep == nil {
		e.count(descriptors.CounterBadDoorbells, uint64(bits.OnesCount32(r.set)))
		return
	}
	if r.set&rungSend != 0 && e.advance(ep, &ep.send, r.send) {
		if ep.state == descriptors.StateConnected {
			e.ready.add(ep)
		} else {
			e.conns.flushSends(ep, descriptors.StatusFlushed)
		}
	}
	if r.set&rungRecv != 0 && e.advance(ep, &ep.recv, r.recv) {
		if ep.state == descriptors.StateError {
			e.conns.flushReceives(ep)
		} else {
			ep.kind.posted(ep)
		}
	}
	if r.set&rungSendArm != 0 && !e.cqs.arm(&ep.send, r.sendArm) {
		e.count(descriptors.CounterBadDoorbells, 1)
	}
	if r.set&rungRecvArm != 0 && !e.cqs.arm(&ep.recv, r.recvArm) {
		e.count(descriptors.CounterBadDoorbells, 1)
	}
}

// advance takes a producer index that the host stored, if it can be.
func (e *Engine) advance(ep *endpoint, q *workQueue, value uint32) bool {
	// Going backwards would take posted descriptors back.
	if value-q.completed > q.mask+1 || int32(value-q.producer) < 0 {
		e.count(descriptors.CounterBadDoorbells, 1)
		e.event(descriptors.Event{Code: descriptors.EventVIOverrun, Endpoint: ep.id, CQ: descriptors.NoCQ, Detail: value})
		return false
	}
	q.producer = value
	return true
}
