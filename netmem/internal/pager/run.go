package pager

// runBytes is the most that one request reads ahead: so much that the cost of a request, a
// call of the kernel, and the loss of what other processors know of the page tables cost is
// shared by many pages, and so little that several requests are under way in a window.
const runBytes = 256 << 10

// readRun begins to fetch pages from page to before end that are not local, as many as fit
// into a run, and returns how many these are. It is none if there is no room for two.
func (p *Pager) readRun(page, end uint64) int {
	count := 0
	for count < p.run && page+uint64(count) < end && p.index[page+uint64(count)] == nil {
		count++
	}
	if count < 2 {
		return 0
	}
	b := p.takeBlock(count)
	if b == none {
		return 0
	}
	j := p.newJob(false)
	for i := range count {
		f := p.take(page+uint64(i), b+i)
		f.ahead = true
		p.add(j, f)
	}
	p.stats.Ahead += uint64(count)
	p.ahead <- j
	return count
}

// installRun is install for pages that follow each other. It makes room before it copies, as far
// as pages can leave without being written back, and does so without the lock, too.
func (p *Pager) installRun(j *job, frames []*frame) {
	first := frames[0]
	for _, f := range frames {
		f.state = moving
	}
	p.leave(j, p.mapped+len(frames)-p.most)
	from := int64(first.buffer) * p.size
	p.mu.Unlock()
	gone := p.punchOut(j.leaving)
	err := p.memory.Object.Copy(p.address(first), p.buffers[from:][:int64(len(frames))*p.size], true)
	p.mu.Lock()
	p.fail(gone)
	p.left(j)
	for _, f := range frames {
		p.moved(f, err)
	}
	p.check(err)
	if err == nil {
		p.makeRoom()
	}
}
