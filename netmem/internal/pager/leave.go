package pager

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
