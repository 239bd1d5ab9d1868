package engine

import (
	"math/bits"
	"slices"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
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
// collected without a lock, in a cell per page, and cells that hold some are linked; in
// shared memory it looks.
type doorbells struct {
	// rang is told of what is new on a page.
	rang func(page uint32, b bell, value uint32)
	// rangChannel is told of what is new among a channel's doorbells, see channelBells.
	rangChannel func(page uint32, which channelBell, value uint32)
	endpoints   uint32 // the pages below are endpoints', the others completion queues'

	cells  []cell
	bar    []byte        // nil: all stores are trapped
	mapped []*mappedPage // that are in use
	scanAt int
	marks  marks // where the host says to which it has stored

	_ [apart]byte
	// last is the page, plus one, that was linked last; zero if none is.
	last atomic.Uint32
	_    [apart]byte
}

// apart keeps what other processors write off the cache lines of the engine, and off
// the neighbours that amd64 fetches along with them.
const apart = 128

// bell is one of the doorbells of a page. A completion queue's arm doorbell is where an
// endpoint's send doorbell is. Those of a ring are bellRing behind the others.
type bell uint8

const (
	bellSend bell = iota
	bellRecv
	bellSendArm
	bellRecvArm

	bellRing
	bells = 2 * bellRing
)

// bellOffsets are where the doorbells are in a page; those of a ring are DoorbellRing behind
// them.
var bellOffsets = [bellRing]uint64{datasheet.DoorbellSend, datasheet.DoorbellRecv, datasheet.DoorbellSendArm, datasheet.DoorbellRecvArm}

// cell holds the doorbells of one page that were stored but not yet taken.
type cell struct {
	rung   atomic.Uint32        // a bit for each doorbell, and linked
	next   uint32               // page, plus one, that was linked before
	values [bells]atomic.Uint32 // by doorbell
	mapped *mappedPage          // nil: not looked at
	// channel are the doorbells of a channel, nil if the page has none.
	channel atomic.Pointer[channelBells]
}

// linked says that a cell can be reached from doorbells.last. Whoever sets it links the
// cell, and next is his until then.
const linked = 1 << bells

// mappedPage is a doorbell page in shared memory: by doorbell, from the first that it has on,
// where it is, nil if the page has no more, and the value found at the last look, zero of an
// arm word.
type mappedPage struct {
	number uint32
	first  bell
	words  [len(bellOffsets)]*uint32
	seen   [len(bellOffsets)]uint32
}

func newDoorbells(endpoints, cqs uint32, rang func(uint32, bell, uint32)) doorbells {
	return doorbells{rang: rang, endpoints: endpoints, cells: make([]cell, endpoints+cqs)}
}

// clear forgets what was stored, and closes all pages.
func (d *doorbells) clear() {
	for i := range d.cells {
		d.cells[i].rung.And(linked)
		d.cells[i].mapped = nil
		d.cells[i].channel.Store(nil)
	}
	for _, p := range d.mapped {
		p.reset()
	}
	d.mapped, d.scanAt = nil, 0
	if d.bar != nil {
		d.clearMarks()
	}
}

// find returns the doorbell at an offset in BAR2. ok is false if there is none.
func (d *doorbells) find(offset uint64) (page uint32, b bell, ok bool) {
	number, offset := offset/datasheet.PageSize, offset%datasheet.PageSize
	first := bell(0)
	if offset >= datasheet.DoorbellRing && number < uint64(d.endpoints) {
		first, offset = bellRing, offset-datasheet.DoorbellRing
	}
	i := slices.Index(bellOffsets[:], offset)
	return uint32(number), first + bell(i), number < uint64(len(d.cells)) && i >= 0
}

// ring takes a store that was trapped. It may be called from any goroutine.
func (d *doorbells) ring(page uint32, b bell, value uint32) {
	c := &d.cells[page]
	c.values[b].Store(value)
	d.link(page, 1<<b)
}

// link notes that something was stored to a page that was trapped: of bits, those of cell.rung.
func (d *doorbells) link(page, bits uint32) {
	c := &d.cells[page]
	if c.rung.Or(bits|linked)&linked != 0 {
		return
	}
	for {
		c.next = d.last.Load()
		if d.last.CompareAndSwap(c.next, page+1) {
			return
		}
	}
}

// take reports what is new, and whether there was anything.
func (d *doorbells) take() (any bool) {
	if d.last.Load() != 0 {
		any = d.takeLinked()
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

// takeLinked reports the stores that were trapped, page by page: the page that was
// linked first comes first.
func (d *doorbells) takeLinked() (any bool) {
	first := uint32(0)
	for n := d.last.Swap(0); n != 0; {
		c := &d.cells[n-1]
		c.next, first, n = first, n, c.next
	}
	for first != 0 {
		page := first - 1
		first = d.cells[page].next
		d.cells[page].rung.And(^uint32(linked)) // from now on it may be linked again
		any = d.takeCell(page) || any
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
func (d *doorbells) takeCell(page uint32) bool {
	c := &d.cells[page]
	set := c.rung.And(linked) &^ linked
	if set&rungChannel != 0 {
		d.takeChannel(page, c.channel.Load())
	}
	for left := set &^ rungChannel; left != 0; left &= left - 1 {
		b := bell(bits.TrailingZeros32(left))
		d.rang(page, b, c.values[b].Load())
	}
	return set != 0
}

// look reports what was stored to a page in shared memory since the last look: producer
// indices that are not the ones seen, and arm words, which it takes.
func (d *doorbells) look(p *mappedPage) (any bool) {
	for i, at := range p.words {
		if at == nil {
			break
		}
		value := atomic.LoadUint32(at)
		if value == p.seen[i] {
			continue
		}
		if bell(i) >= bellSendArm || p.number >= d.endpoints {
			value = atomic.SwapUint32(at, 0)
		} else {
			p.seen[i] = value
		}
		d.rang(p.number, p.first+bell(i), value)
		any = true
	}
	if b := d.cells[p.number].channel.Load(); b != nil {
		any = d.takeChannel(p.number, b) || any
	}
	return any
}

// reset makes a page read zero.
func (p *mappedPage) reset() {
	for _, w := range p.words {
		if w != nil {
			atomic.StoreUint32(w, 0)
		}
	}
}

// share makes bar, the memory of BAR2, the place to look at from now on. It returns
// false if bar is too small or not aligned to a page.
func (d *doorbells) share(bar []byte) bool {
	if uint64(len(bar)) < uint64(len(d.cells))*datasheet.PageSize || datasheet.IndexAt(bar) == nil {
		return false
	}
	d.bar = bar
	d.marks = marks{on: d.word(datasheet.MarksOn)}
	for i := range d.marks.groups {
		d.marks.groups[i] = d.word(datasheet.MarkGroups + 4*uint64(i))
	}
	return true
}

func (d *doorbells) word(offset uint64) *uint32 { return datasheet.IndexAt(d.bar[offset:]) }

// open begins with the page of a new endpoint, whose doorbells begin with first, or of a
// completion queue: what was stored there before counts no more. One that looks is looked at
// in shared memory.
func (d *doorbells) open(page uint32, first bell, looks bool) {
	c := &d.cells[page]
	c.rung.And(linked)
	if d.bar == nil || !looks {
		return
	}
	p := &mappedPage{number: page}
	at := uint64(page) * datasheet.PageSize
	if first == bellRing {
		p.first, at = bellRing, at+datasheet.DoorbellRing
	}
	for b, offset := range bellOffsets {
		if page < d.endpoints || b == 0 {
			p.words[b] = d.word(at + offset)
		}
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
	c.channel.Store(nil)
}

// groupWords is the number of 32-bit words that hold the group bytes of all marks.
const groupWords = datasheet.MarkCount / datasheet.MarksPerGroup / 4

// marks finds the doorbell pages in shared memory to which the host has stored
// (SPEC 3.4).
type marks struct {
	on     *uint32 // word in which the host says that it marks
	groups [groupWords]*uint32
	at     int // word to begin with
}

// clearMarks forgets all marks, and that the host marks.
func (d *doorbells) clearMarks() {
	for offset := uint64(datasheet.MarkGroups); offset <= datasheet.MarksOn; offset += 4 {
		atomic.StoreUint32(d.word(offset), 0)
	}
	for offset := uint64(datasheet.MarkBase); offset < datasheet.MarkBase+datasheet.MarkCount; offset += 4 {
		atomic.StoreUint32(d.word(offset), 0)
	}
}

// takeMarked looks at the pages that are marked, about scanSlice of them: a host
// that marks what it likes costs a step no more than that.
func (d *doorbells) takeMarked() bool {
	any, left := false, scanSlice
	for range d.marks.groups {
		if d.marks.at++; d.marks.at == groupWords {
			d.marks.at = 0
		}
		word := d.marks.groups[d.marks.at]
		for groups := atomic.LoadUint32(word); groups != 0; {
			k := bits.TrailingZeros32(groups) / 8
			mask := uint32(0xff) << (8 * k)
			// It is cleared before the marks are read: one that comes later sets it again.
			atomic.AndUint32(word, ^mask)
			groups &^= mask
			if any = d.takeGroup(4*d.marks.at+k, &left) || any; left <= 0 {
				return true
			}
		}
	}
	return any
}

// takeGroup looks at the marked pages of one group.
func (d *doorbells) takeGroup(group int, left *int) bool {
	any := false
	first := uint64(group) * datasheet.MarksPerGroup
	for i := uint64(0); i < datasheet.MarksPerGroup; i += 4 {
		marked := datasheet.TakeMarks(d.bar, datasheet.MarkBase+first+i)
		for marked != 0 {
			k := bits.TrailingZeros32(marked) / 8
			marked &^= 0xff << (8 * k)
			for page := first + i + uint64(k); page < uint64(len(d.cells)); page += datasheet.MarkCount {
				if p := d.cells[page].mapped; p != nil {
					any = d.look(p) || any
				}
				*left--
			}
		}
	}
	return any
}
