package pager

// takeBuffer takes a buffer: one that is not in use, or that of the page that is in the pool
// for longest; or none.
func (p *Pager) takeBuffer() int {
	if n := len(p.unused); n > 0 {
		b := p.unused[n-1]
		p.unused = p.unused[:n-1]
		return b
	}
	f := p.idle.oldest
	if f == nil {
		return none
	}
	p.idle.remove(f)
	b := f.buffer
	p.forget(f)
	return b
}

// forget has a page not be local any more. Its buffer is the caller's.
func (p *Pager) forget(f *frame) {
	if f.ahead {
		p.stats.Unused++
	}
	delete(p.index, f.page)
	*f = frame{state: free, buffer: none}
	p.free = append(p.free, f)
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
	at := f.page * p.size
	if f.dirty {
		p.protect(f)
	}
	keep := f.dirty || !f.ahead
	if keep {
		if f.buffer = p.takeBuffer(); f.buffer == none {
			p.fail(errNoVictim) // install has left one
			return
		}
		if err := p.memory.read(p.bytes(f), at); err != nil {
			p.fail(err)
			return
		}
	}
	if err := p.memory.punch(at, p.size); err != nil {
		p.fail(err)
		return
	}
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
