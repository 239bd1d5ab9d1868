package core

import (
	"math/bits"
	"slices"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// scanSlice is about the number of marked doorbell pages in shared memory that are looked at in one
// step, so that a step costs the same for any number.
const scanSlice = 64

// scanAll is up to how many pages each step looks at them rather than at marks,
// which takes one cache line less from a host on another processor.
const scanAll = 4

// doorbells finds what the host has stored to the pages of BAR2: trapped stores are
// collected without a lock, in a cell per page, and cells that hold some are linked; in
// shared memory it looks.
type doorbells struct {
	// rang is told of what is new on a page.
	rang func(page uint32, b Bell, value uint32)
	// RangChannel is told of what is new among a channel's doorbells, see channelBells.
	RangChannel func(page uint32, which ChannelBell, value uint32)
	endpoints   uint32 // the pages below are endpoints', the others completion queues'

	Cells  []cell
	Bar    []byte        // nil: all stores are trapped
	Mapped []*mappedPage // that are in use
	marks  marks         // where the host says to which it has stored

	_ [apart]byte
	// Last is the page, plus one, that was linked last; zero if none is.
	Last atomic.Uint32
	_    [apart]byte
}

// apart keeps what other processors write off the cache lines of the engine, and off
// the neighbours that amd64 fetches along with them.
const apart = 128

// Bell is one of the doorbells of a page. A completion queue's arm doorbell is where an
// endpoint's send doorbell is. Those of a ring are bellRing behind the others.
type Bell uint8

const (
	BellSend Bell = iota
	BellRecv
	BellSendArm
	bellRecvArm

	BellRing
	Bells = 2 * BellRing
)

// bellOffsets are where the doorbells are in a page; those of a ring are DoorbellRing behind
// them.
var bellOffsets = [BellRing]uint64{datasheet.DoorbellSend, datasheet.DoorbellRecv, datasheet.DoorbellSendArm, datasheet.DoorbellRecvArm}

// cell holds the doorbells of one page that were stored but not yet taken.
type cell struct {
	Rung   atomic.Uint32        // a bit for each doorbell, and linked
	next   uint32               // page, plus one, that was linked before
	values [Bells]atomic.Uint32 // by doorbell
	mapped *mappedPage          // nil: not looked at
	// Channel are the doorbells of a channel, nil if the page has none.
	Channel atomic.Pointer[ChannelBells]
}

// linked says that a cell can be reached from doorbells.last. The call that sets it links the
// cell, and next is its own until then.
const linked = 1 << Bells

// mappedPage is a doorbell page in shared memory: by doorbell, from the first that it has on,
// where it is, nil if the page has no more, and the value found at the last look, zero of an
// arm word.
type mappedPage struct {
	number uint32
	first  Bell
	words  [len(bellOffsets)]*uint32
	seen   [len(bellOffsets)]uint32
}

func newDoorbells(endpoints, cqs uint32, rang func(uint32, Bell, uint32)) doorbells {
	return doorbells{rang: rang, endpoints: endpoints, Cells: make([]cell, endpoints+cqs)}
}

// clear forgets what was stored, and closes all pages.
func (d *doorbells) clear() {
	for i := range d.Cells {
		d.Cells[i].Rung.And(linked)
		d.Cells[i].mapped = nil
		d.Cells[i].Channel.Store(nil)
	}
	for _, p := range d.Mapped {
		p.reset()
	}
	d.Mapped = nil
	if d.Bar != nil {
		d.clearMarks()
	}
}

// Find returns the doorbell at an offset in BAR2. ok is false if there is none.
func (d *doorbells) Find(offset uint64) (page uint32, b Bell, ok bool) {
	number, offset := offset/datasheet.PageSize, offset%datasheet.PageSize
	first := Bell(0)
	if offset >= datasheet.DoorbellRing && number < uint64(d.endpoints) {
		first, offset = BellRing, offset-datasheet.DoorbellRing
	}
	i := slices.Index(bellOffsets[:], offset)
	return uint32(number), first + Bell(i), number < uint64(len(d.Cells)) && i >= 0
}

// Ring takes a store that was trapped. It may be called from any goroutine.
func (d *doorbells) Ring(page uint32, b Bell, value uint32) {
	c := &d.Cells[page]
	c.values[b].Store(value)
	d.link(page, 1<<b)
}

// link notes that something was stored to a page that was trapped: of bits, those of cell.rung.
func (d *doorbells) link(page, bits uint32) {
	c := &d.Cells[page]
	if c.Rung.Or(bits|linked)&linked != 0 {
		return
	}
	for {
		c.next = d.Last.Load()
		if d.Last.CompareAndSwap(c.next, page+1) {
			return
		}
	}
}

// Take reports what is new, and whether there was anything.
func (d *doorbells) Take() (any bool) {
	if d.Last.Load() != 0 {
		any = d.TakeLinked()
	}
	if len(d.Mapped) > scanAll {
		return d.takeMarked() || any
	}
	for _, p := range d.Mapped {
		any = d.look(p) || any
	}
	return any
}

// TakeLinked reports the stores that were trapped, page by page: the page that was
// linked first comes first.
func (d *doorbells) TakeLinked() (any bool) {
	first := uint32(0)
	for n := d.Last.Swap(0); n != 0; {
		c := &d.Cells[n-1]
		c.next, first, n = first, n, c.next
	}
	for first != 0 {
		page := first - 1
		first = d.Cells[page].next
		d.Cells[page].Rung.And(^uint32(linked)) // from now on it may be linked again
		any = d.TakeCell(page) || any
	}
	return any
}

// TakePage reports what is new on one page.
func (d *doorbells) TakePage(page uint32) {
	if p := d.Cells[page].mapped; p != nil {
		d.look(p)
	}
	d.TakeCell(page)
}

// TakeCell reports the stores to a page that were trapped.
func (d *doorbells) TakeCell(page uint32) bool {
	c := &d.Cells[page]
	set := c.Rung.And(linked) &^ linked
	if set&rungChannel != 0 {
		d.TakeChannel(page, c.Channel.Load())
	}
	for left := set &^ rungChannel; left != 0; left &= left - 1 {
		b := Bell(bits.TrailingZeros32(left))
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
		if Bell(i) >= BellSendArm || p.number >= d.endpoints {
			value = atomic.SwapUint32(at, 0)
		} else {
			p.seen[i] = value
		}
		d.rang(p.number, p.first+Bell(i), value)
		any = true
	}
	if b := d.Cells[p.number].Channel.Load(); b != nil {
		any = d.TakeChannel(p.number, b) || any
	}
	return any
}

func (p *mappedPage) reset() {
	for _, w := range p.words {
		if w != nil {
			atomic.StoreUint32(w, 0)
		}
	}
}

// Share makes bar, the memory of BAR2, the place to look at from now on. It returns
// false if bar is too small or not aligned to a page.
func (d *doorbells) Share(bar []byte) bool {
	if uint64(len(bar)) < uint64(len(d.Cells))*datasheet.PageSize || datasheet.IndexAt(bar) == nil {
		return false
	}
	d.Bar = bar
	for i := range d.marks.groups {
		d.marks.groups[i] = d.word(datasheet.MarkGroups + 4*uint64(i))
	}
	return true
}

func (d *doorbells) word(offset uint64) *uint32 { return datasheet.IndexAt(d.Bar[offset:]) }

// Open begins with the page of a new endpoint, whose doorbells begin with first, or of a
// completion queue: what was stored there before counts no more. One that looks is looked at
// in shared memory.
func (d *doorbells) Open(page uint32, first Bell, looks bool) {
	c := &d.Cells[page]
	c.Rung.And(linked)
	if d.Bar == nil || !looks {
		return
	}
	p := &mappedPage{number: page}
	at := uint64(page) * datasheet.PageSize
	if first == BellRing {
		p.first, at = BellRing, at+datasheet.DoorbellRing
	}
	for b, offset := range bellOffsets {
		if page < d.endpoints || b == 0 {
			p.words[b] = d.word(at + offset)
		}
	}
	p.reset()
	c.mapped = p
	d.Mapped = append(d.Mapped, p)
}

func (d *doorbells) Close(page uint32) {
	c := &d.Cells[page]
	d.Mapped = slices.DeleteFunc(d.Mapped, func(p *mappedPage) bool { return p == c.mapped })
	c.mapped = nil
	c.Channel.Store(nil)
}

// groupWords is the number of 32-bit words that hold the group bytes of all marks.
const groupWords = datasheet.MarkCount / datasheet.MarksPerGroup / 4

// marks finds the doorbell pages in shared memory to which the host has stored
// (SPEC 3.4).
type marks struct {
	groups [groupWords]*uint32
	at     int // word to begin with
}

// clearMarks forgets all marks.
func (d *doorbells) clearMarks() {
	for _, group := range d.marks.groups {
		atomic.StoreUint32(group, 0)
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
		marked := datasheet.TakeMarks(d.Bar, datasheet.MarkBase+first+i)
		for marked != 0 {
			k := bits.TrailingZeros32(marked) / 8
			marked &^= 0xff << (8 * k)
			for page := first + i + uint64(k); page < uint64(len(d.Cells)); page += datasheet.MarkCount {
				if p := d.Cells[page].mapped; p != nil {
					any = d.look(p) || any
				}
				*left--
			}
		}
	}
	return any
}
