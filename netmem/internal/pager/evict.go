package pager

// forget makes a page not be local any more. Its buffer is the caller's.
func (p *Pager) forget(f *frame) {
	if f.ahead {
		p.stats.Unused++
	}
	delete(p.index, f.page)
	*f = frame{state: free, buffer: none}
	p.free = append(p.free, f)
}

// makeRoom takes pages from the mapped memory until there are no more of them than may be.
func (p *Pager) makeRoom() {
	for p.mapped > p.most && p.err == nil {
		p.evict()
	}
	p.fail(p.hole.punch(p.memory))
}

// hole is a part of the memory that is to be punched out, which may be none.
type hole struct{ start, end int64 }

// add punches a page out of its place, together with those beside it that leave at the same time: punch
// is called at the end, before the lock is let go.
func (h *hole) add(m *Memory, at, length int64) error {
	switch {
	case h.end == h.start:
	case at == h.end:
		h.end += length
		return nil
	case at+length == h.start:
		h.start = at
		return nil
	}
	err := h.punch(m)
	*h = hole{at, at + length}
	return err
}

func (h *hole) punch(m *Memory) error {
	gone := *h
	if *h = (hole{}); gone == *h {
		return nil
	}
	return m.punch(gone.start, gone.end-gone.start)
}

// evict takes a page from the mapped memory, by the clock.
func (p *Pager) evict() {
	// After all chances are taken every page that is not being written back is a
	// candidate, and there are more pages than buffers to write from.
	for range (chanceMost + 2) * len(p.frames) {
		f := &p.frames[p.hand]
		p.hand = (p.hand + 1) % len(p.frames)
		switch {
		case f.state != mapped || f.writing:
		case f.chances > 0:
			f.chances--
		default:
			p.unmap(f)
			return
		}
	}
	p.fail(errNoVictim)
}

// unmap takes a page out of its place: into the pool, if it was missed once or must be
// written back. What it holds is read when no write to it can be under way any more.
func (p *Pager) unmap(f *frame) {
	p.stats.Evicted++
	if f.dirty {
		p.protect(f)
	}
	keep := f.dirty || !f.ahead
	if keep && !p.save(f) {
		p.fail(errNoVictim) // install has left a buffer
		return
	}
	p.fail(p.hole.add(p.memory, p.offset(f), p.size))
	p.mapped--
	switch {
	case !keep:
		p.forget(f)
	case f.dirty:
		f.state = pooled
		p.writeBack(f)
	default:
		f.state = pooled
		p.idle.add(f)
	}
}

// protect makes the next write to a page fault.
func (p *Pager) protect(f *frame) {
	p.check(p.memory.Object.Protect(p.address(f), uint64(p.size)))
}

// leave chooses pages, by the clock, that leave the mapped memory for a run: count at most, and
// none that must be written back or for whose bytes there is no buffer. Where the clock comes to
// such a page the choice ends, and makeRoom goes on with it.
func (p *Pager) leave(j *job, count int) {
	j.leaving = j.leaving[:0]
	for range 2 * len(p.frames) {
		if len(j.leaving) >= min(count, p.run) {
			return
		}
		f := &p.frames[p.hand]
		switch {
		case f.state != mapped || f.writing:
		case f.chances > 0:
			f.chances--
		case f.dirty || !f.ahead && !p.save(f):
			return
		default:
			f.state, f.wanted, f.wantedWrite = leaving, false, false
			j.leaving = append(j.leaving, f)
		}
		p.hand = (p.hand + 1) % len(p.frames)
	}
}

// save copies a page that is protected against writing to a buffer of the pool, if there is one.
func (p *Pager) save(f *frame) bool {
	b := p.takeBuffer()
	if b == none {
		return false
	}
	p.give(f, b)
	if err := p.memory.read(p.bytes(f), p.offset(f)); err != nil {
		p.fail(err)
		return false
	}
	return true
}

// punchOut punches pages out of their places, those beside each other together. It needs no lock.
func (p *Pager) punchOut(frames []*frame) error {
	var h hole
	for _, f := range frames {
		if err := h.add(p.memory, p.offset(f), p.size); err != nil {
			return err
		}
	}
	return h.punch(p.memory)
}

// left goes on with the pages that have left for a run. Who has missed one meanwhile waits for the
// source, as it is not in its place any more.
func (p *Pager) left(j *job) {
	for _, f := range j.leaving {
		p.stats.Evicted++
		p.mapped--
		switch {
		case f.wanted:
			w := wanted{f.page, f.part, f.wantedWrite, f.missed}
			if f.buffer != none {
				p.release(f)
			}
			p.forget(f)
			p.miss(w)
		case f.buffer != none:
			f.state = pooled
			p.idle.add(f)
		default:
			p.forget(f)
		}
	}
	j.leaving = j.leaving[:0]
}
