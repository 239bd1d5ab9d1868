package pager

// forget has a page not be local any more. Its buffer is the caller's.
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
	p.punched()
}

// punch has a page punched out of its place, together with those beside it that leave at the
// same time: punched is called before the lock is let go.
func (p *Pager) punch(at int64) {
	if !p.hole.grow(at, p.size) {
		p.punched()
		p.hole = hole{at, at + p.size}
	}
}

// punched punches out what punch has been told.
func (p *Pager) punched() {
	h := p.hole
	p.hole = hole{}
	p.fail(p.punchHole(h))
}

// punchHole punches out a part of the memory, which may be none.
func (p *Pager) punchHole(h hole) error {
	if h.end == h.start {
		return nil
	}
	return p.memory.punch(h.start, h.end-h.start)
}

// hole is a part of the memory.
type hole struct{ start, end int64 }

// grow adds what is beside it, and reports whether that is so.
func (h *hole) grow(at, length int64) bool {
	switch {
	case h.end == h.start:
		return false
	case at == h.end:
		h.end += length
	case at+length == h.start:
		h.start = at
	default:
		return false
	}
	return true
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
	p.punch(p.offset(f))
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

// protect has the next write to a page be a fault.
func (p *Pager) protect(f *frame) {
	p.check(p.memory.Object.Protect(p.address(f), uint64(p.size)))
}

// leave chooses pages, by the clock, that leave the mapped memory for a run: count at most, and
// none that must be written back or for whose bytes there is no buffer. Where the clock comes to
// such a page the choice ends, and makeRoom goes on with it.
func (p *Pager) leave(r *run, count int) {
	r.leaving = r.leaving[:0]
	for range 2 * len(p.frames) {
		if len(r.leaving) >= min(count, p.run) {
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
			r.leaving = append(r.leaving, f)
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
		at := p.offset(f)
		if h.grow(at, p.size) {
			continue
		}
		if err := p.punchHole(h); err != nil {
			return err
		}
		h = hole{at, at + p.size}
	}
	return p.punchHole(h)
}

// left goes on with the pages that have left for a run. Who has missed one meanwhile waits for the
// source, as it is not in its place any more.
func (p *Pager) left(r *run) {
	for _, f := range r.leaving {
		p.stats.Evicted++
		p.mapped--
		switch {
		case f.wanted:
			page, part, write, since := f.page, f.part, f.wantedWrite, f.missed
			if f.buffer != none {
				p.release(f)
			}
			p.forget(f)
			p.miss(page, part, write, since)
		case f.buffer != none:
			f.state = pooled
			p.idle.add(f)
		default:
			p.forget(f)
		}
	}
	r.leaving = r.leaving[:0]
}
