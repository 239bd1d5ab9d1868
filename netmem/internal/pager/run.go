package pager

import (
	"context"
	"fmt"
)

// runBytes is the most that one request reads ahead: so much that the cost of a request, a
// call of the kernel, and the loss of what other processors know of the page tables cost is
// shared by many pages, and so little that several requests are under way in a window.
const runBytes = 256 << 10

// run is pages that follow each other, and are read ahead together into buffers that follow
// each other.
type run struct {
	frames   []*frame
	versions []uint64
	// leaving are the pages that make room for it.
	leaving []*frame
}

// readRun begins to fetch pages from page to before end that are not local, as many as fit
// into a run, and returns how many these are. It is none if there is no room for two.
func (p *Pager) readRun(page, end uint64) int {
	if len(p.runs) == 0 {
		return 0
	}
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
	r := p.runs[len(p.runs)-1]
	p.runs = p.runs[:len(p.runs)-1]
	r.frames, r.versions = r.frames[:0], r.versions[:count]
	for i := range count {
		f := p.take(page+uint64(i), b+i)
		f.ahead = true
		r.frames = append(r.frames, f)
	}
	p.stats.Ahead += uint64(count)
	p.startRun(r)
	return count
}

// readPages reads the pages of a run, and returns how many were read before an error.
func (p *Pager) readPages(ctx context.Context, j *job) (n int, err error) {
	if s, ok := p.source.(RunSource); ok {
		n, err = s.ReadPages(ctx, j.page, j.at, j.run.versions)
		if n < 0 || n > len(j.run.versions) || n < len(j.run.versions) && err == nil {
			return 0, fmt.Errorf("%w: it has read %d pages of %d", ErrSource, n, len(j.run.versions))
		}
		return n, err
	}
	for n < len(j.run.versions) {
		j.called.Store(p.clock.now()) // the deadline is for each page
		if j.run.versions[n], err = p.source.ReadPage(ctx, j.page+uint64(n), j.at+n*int(p.size)); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// finishRun goes on with a run of which count pages have come. Who waits for its first page is a
// reader who has come so far, and gets all of it at once; a page in its midst for which a thread
// waits goes before the others.
func (p *Pager) finishRun(r *run, count int, err error, called, answered int64) {
	for i, f := range r.frames {
		switch {
		case i < count:
			f.version = r.versions[i]
		case f.wanted:
			p.fail(fmt.Errorf("read page %d: %w", f.page, err))
			return
		default: // who needs it will ask again, and be told
			b := f.buffer
			p.forget(f)
			p.used.put(b)
		}
	}
	frames := r.frames[:count]
	for i, f := range frames {
		if i > 0 && f.wanted && p.err == nil {
			frames[i] = nil
			p.fetched(f, called, answered)
		}
	}
	for len(frames) > 0 && p.err == nil {
		n := 0
		for n < len(frames) && frames[n] != nil {
			n++
		}
		if n > 0 {
			p.installRun(r, frames[:n])
		}
		frames = frames[min(n+1, len(frames)):]
	}
	p.runs = append(p.runs, r)
	p.serve()
}

// installRun is install for pages that follow each other. It makes room before it copies, as far
// as pages can leave without being written back, and does so without the lock, too.
func (p *Pager) installRun(r *run, frames []*frame) {
	first := frames[0]
	for _, f := range frames {
		f.state = moving
	}
	p.leave(r, p.mapped+len(frames)-p.most)
	from := int64(first.buffer) * p.size
	p.mu.Unlock()
	gone := p.punchOut(r.leaving)
	err := p.memory.Object.Copy(p.address(first), p.buffers[from:][:int64(len(frames))*p.size], true)
	p.mu.Lock()
	p.fail(gone)
	p.left(r)
	for _, f := range frames {
		p.moved(f, err)
	}
	p.check(err)
	if err == nil {
		p.makeRoom()
	}
}
