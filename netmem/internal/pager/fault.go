package pager

import (
	"errors"
	"fmt"
	"slices"

	"github.com/trapeze-nic/trapeze/netmem/internal/readahead"
	"github.com/trapeze-nic/trapeze/netmem/internal/userfault"
)

// fault does what a report asks for. A report may be older than what the pager has done
// since, and a thread that a signal has woken reports once more: it tells only that a thread
// may wait at that page, and what the page needs is found in its frame.
func (p *Pager) fault(e *userfault.Event, now int64) {
	offset := int64(e.Address - p.memory.Base)
	page, part := uint64(offset/p.size), offset%p.size/p.part*p.part
	if e.Address < p.memory.Base || offset < 0 || page >= p.pages {
		p.fail(fmt.Errorf("a fault is reported at %#x, outside of the mapped memory", e.Address))
		return
	}
	f := p.index[page]
	switch {
	case f == nil:
		p.miss(wanted{page, part, e.Write, now})
	case f.state == mapped && !e.Protected && !p.memory.holds(offset):
		// It would be reported again for ever; and what was there is lost.
		p.fail(fmt.Errorf("%w: page %d", ErrRemoved, f.page))
		return
	case f.state == mapped:
		p.touch(f, e.Write)
		return
	case f.state == moving:
		f.wanted, f.wantedWrite = true, f.wantedWrite || e.Write
		if !f.ahead {
			return // it was missed before
		}
		f.ahead, f.chances = false, chanceMissed
	case f.state == fetching, f.state == leaving, f.writing:
		f.wantedWrite = f.wantedWrite || e.Write
		if f.wanted {
			return
		}
		f.wanted, f.missed, f.part = true, now, part
	default:
		p.stats.Returned++
		f.chances = chanceReturned
		if f.ahead {
			f.chances, f.ahead = chanceMissed, false
		}
		f.part = part
		p.install(f, e.Write)
	}
	p.readAhead(p.readers.Seen(page, true))
}

// miss fetches a page, or has it wait for a buffer.
func (p *Pager) miss(w wanted) {
	for i := range p.starved {
		if other := &p.starved[i]; other.page == w.page {
			other.write = other.write || w.write
			return
		}
	}
	p.stats.Missed++
	if len(p.starved) > 0 || !p.fetch(w) {
		p.starved = append(p.starved, w)
	}
}

// fetch begins to fetch a page that a thread waits for, if there is a buffer.
func (p *Pager) fetch(w wanted) bool {
	b := p.takeBuffer()
	if b == none {
		return false
	}
	f := p.take(w.page, b)
	f.wanted, f.wantedWrite, f.missed, f.part = true, w.write, w.since, w.part
	f.chances = chanceMissed
	p.start(p.demand, f)
	return true
}

// serve lets those go on who wait for buffers.
func (p *Pager) serve() {
	p.changed.Broadcast()
	for len(p.starved) > 0 && p.err == nil {
		if !p.fetch(p.starved[0]) {
			return
		}
		p.starved = slices.Delete(p.starved, 0, 1)
	}
}

// readAhead begins to fetch pages from first to before end that are not local, as far as there
// are buffers.
func (p *Pager) readAhead(a readahead.Advice) {
	first, marker, end := a.First, a.Marker, min(a.End, p.pages)
	for page := first; page < end && len(p.starved) == 0 && p.err == nil; page++ {
		if p.index[page] != nil {
			continue
		}
		if page != marker {
			stop := end
			if page < marker {
				stop = min(end, marker)
			}
			if n := p.readRun(page, stop); n > 0 {
				page += uint64(n) - 1
				continue
			}
		}
		b := p.takeBuffer()
		if b == none {
			return
		}
		f := p.take(page, b)
		f.ahead, f.marker = true, page == marker
		p.stats.Ahead++
		p.start(p.ahead, f)
	}
}

// take makes a frame for a page that will be fetched into a buffer.
func (p *Pager) take(page uint64, buffer int) *frame {
	f := p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	*f = frame{page: page, state: fetching}
	p.give(f, buffer)
	p.index[page] = f
	return f
}

// install puts a page from its buffer into its place, and makes room there. Meanwhile others
// have the lock, so that pages that come at the same time are copied at the same time.
func (p *Pager) install(f *frame, write bool) {
	if f.state == pooled && !f.wanted {
		p.idle.remove(f)
	}
	f.state, f.dirty, f.marker = moving, write, false
	f.wanted, f.wantedWrite = false, false
	p.mu.Unlock()
	err := p.place(f, !write)
	p.mu.Lock()
	p.moved(f, err)
	p.check(err)
	if err == nil {
		p.makeRoom()
		p.serve()
	}
}

// moved goes on with a page that was to be put in its place, with what that has failed.
func (p *Pager) moved(f *frame, err error) {
	if err != nil {
		// A mapper that is gone wants no pages, but what it has written is still to be
		// written back.
		f.state, f.dirty = pooled, false
		p.idle.add(f)
		return
	}
	f.state = mapped
	p.mapped++
	p.release(f)
	if f.wanted {
		p.touch(f, f.wantedWrite)
		f.wanted, f.wantedWrite = false, false
	}
}

// place copies a page to its place: first the part for which a thread waits, which then goes
// on, and the rest behind it.
func (p *Pager) place(f *frame, protected bool) error {
	to, from := p.address(f), p.bytes(f)
	end := f.part + p.part
	for _, r := range [...][2]int64{{f.part, end}, {end, p.size}, {0, f.part}} {
		if r[0] == r[1] {
			continue
		}
		if err := p.memory.Object.Copy(to+uint64(r[0]), from[r[0]:r[1]], protected); err != nil {
			return err
		}
	}
	return nil
}

// touch lets threads go on that wait at a page that is in place.
func (p *Pager) touch(f *frame, write bool) {
	start := p.address(f)
	f.ahead, f.chances = false, max(f.chances, chanceMissed)
	if !write || f.dirty {
		p.check(p.memory.Object.Wake(start, uint64(p.size)))
		return
	}
	p.stats.Written++
	f.dirty, f.chances = true, min(f.chances+1, chanceMost)
	p.check(p.memory.Object.Unprotect(start, uint64(p.size)))
}

// check ends the pager if what it has asked the kernel for failed. A mapper that has gone is
// no failure: who holds the other end of its connection will say so.
func (p *Pager) check(err error) {
	if !errors.Is(err, userfault.ErrGone) {
		p.fail(err)
	}
}

func (p *Pager) address(f *frame) uint64 { return p.memory.Base + uint64(p.offset(f)) }

func (p *Pager) offset(f *frame) int64 { return int64(f.page) * p.size }

func (p *Pager) bytes(f *frame) []byte {
	at := int64(f.buffer) * p.size
	return p.buffers[at : at+p.size : at+p.size]
}
