package pager

// buffers is which buffers are in use, and by whom.
type buffers struct {
	owners []*frame // of each; nil of those that are not in use
	unused []int    // a stack
	places []int    // in that stack, of each that is not in use
}

func newBuffers(count int) buffers {
	b := buffers{owners: make([]*frame, count), places: make([]int, count)}
	for i := range count {
		b.put(i)
	}
	return b
}

// put says that a buffer is not in use any more.
func (b *buffers) put(n int) {
	b.owners[n], b.places[n] = nil, len(b.unused)
	b.unused = append(b.unused, n)
}

// remove says that a buffer, which was not, is in use now.
func (b *buffers) remove(n int) {
	last := len(b.unused) - 1
	moved := b.unused[last]
	b.unused[b.places[n]], b.places[moved] = moved, b.places[n]
	b.unused = b.unused[:last]
}

// give gives a frame a buffer that was taken for it.
func (p *Pager) give(f *frame, buffer int) { f.buffer, p.used.owners[buffer] = buffer, f }

// release takes its buffer from a frame.
func (p *Pager) release(f *frame) {
	p.used.put(f.buffer)
	f.buffer = none
}

// takeBuffer takes a buffer: one that is not in use, or that of the page that is in the pool
// for longest; or none.
func (p *Pager) takeBuffer() int {
	if n := len(p.used.unused); n > 0 {
		b := p.used.unused[n-1]
		p.used.remove(b)
		return b
	}
	if f := p.idle.oldest(); f != nil {
		return p.reclaim(f)
	}
	return none
}

// reclaim takes the buffer of a page that is in the pool and may leave it.
func (p *Pager) reclaim(f *frame) int {
	p.idle.remove(f)
	b := f.buffer
	p.forget(f)
	return b
}

// takeBlock takes count buffers that follow each other, at most p.run, and returns the first;
// or none. The blocks that they are looked for in go round, so that no page in the pool
// loses its place much sooner than others.
func (p *Pager) takeBlock(count int) int {
	blocks := len(p.used.owners) / p.run
	for range blocks {
		first := p.block % blocks * p.run
		p.block++
		if !p.available(first, count) {
			continue
		}
		for b := first; b < first+count; b++ {
			if f := p.used.owners[b]; f != nil {
				p.reclaim(f)
			} else {
				p.used.remove(b)
			}
		}
		return first
	}
	return none
}

// available says whether buffers can be taken.
func (p *Pager) available(first, count int) bool {
	for _, f := range p.used.owners[first : first+count] {
		if f != nil && (f.state != pooled || f.writing) {
			return false
		}
	}
	return true
}
