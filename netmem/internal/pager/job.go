package pager

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
)

// errNoVictim would be a mistake of ours in counting.
var errNoVictim = errors.New("no page can leave the local memory")

// job is a request to the source: to read pages that follow each other into buffers that follow
// each other, or to write one back. There are as many as buffers, and one for each worker.
type job struct {
	frames   []*frame
	versions []uint64
	page     uint64 // of the first frame
	at       int    // in the buffers
	write    bool
	// leaving are the pages that make room for several.
	leaving []*frame
	// called is when the source was, 0 before and after.
	called atomic.Int64
}

func (j *job) verb() string {
	if j.write {
		return "write"
	}
	return "read"
}

// newJob takes a job that is not in use.
func (p *Pager) newJob(write bool) *job {
	j := p.rest[len(p.rest)-1]
	p.rest = p.rest[:len(p.rest)-1]
	j.frames, j.versions, j.write = j.frames[:0], j.versions[:0], write
	return j
}

// add makes a page the job's, behind the others.
func (p *Pager) add(j *job, f *frame) {
	if len(j.frames) == 0 {
		j.page, j.at = f.page, f.buffer*int(p.size)
	}
	j.frames, j.versions = append(j.frames, f), append(j.versions, f.version)
}

func (p *Pager) start(to chan *job, f *frame) {
	j := p.newJob(f.state != fetching)
	p.add(j, f)
	to <- j // there is room for all jobs
}

func (p *Pager) writeBack(f *frame) {
	p.ticket++
	f.dirty, f.writing, f.ticket = false, true, p.ticket
	p.start(p.back, f)
}

// work does jobs until the pager ends. One that never returns is noticed by watch.
func (p *Pager) work(jobs <-chan *job) {
	for {
		var j *job
		select {
		case <-p.ctx.Done():
			return
		case j = <-jobs:
		}
		called := p.now()
		count, err := p.call(j)
		took := p.now() - called
		p.mu.Lock()
		j.called.Store(0)
		if p.err == nil {
			p.finish(j, count, err, took)
			p.rest = append(p.rest, j)
		}
		p.mu.Unlock()
	}
}

// call has the source do a job, and returns how many pages it has done before an error.
func (p *Pager) call(j *job) (n int, err error) {
	do := p.source.ReadPage
	if j.write {
		do = func(ctx context.Context, page uint64, at int) (uint64, error) {
			return p.source.WritePage(ctx, page, at, j.versions[0])
		}
	}
	for ; n < len(j.frames); n++ {
		j.called.Store(p.now()) // the deadline is for each page
		if j.versions[n], err = do(p.ctx, j.page+uint64(n), j.at+n*int(p.size)); err != nil {
			break
		}
	}
	return n, err
}

// finish goes on with pages that were read or written, of which count are done. Who waits for the first of several that were read
// is a reader who has come so far, and gets all of them at once; a page in their midst for which a thread
// waits goes before the others.
func (p *Pager) finish(j *job, count int, err error, took int64) {
	for i, f := range j.frames {
		switch {
		case i < count:
			f.version = j.versions[i]
		case j.write || f.wanted:
			p.fail(fmt.Errorf("%s page %d: %w", j.verb(), f.page, err))
			return
		default: // it was read ahead: who needs it will ask again, and be told
			b := f.buffer
			p.forget(f)
			p.used.put(b)
		}
	}
	if j.write {
		p.written(j.frames[0])
		return
	}
	frames := j.frames[:count]
	for i, f := range frames {
		if (i > 0 && f.wanted || len(j.frames) == 1) && p.err == nil {
			frames[i] = nil
			p.fetched(f, took)
		}
	}
	for len(frames) > 0 && p.err == nil {
		n := 0
		for n < len(frames) && frames[n] != nil {
			n++
		}
		if n > 0 {
			p.installRun(j, frames[:n])
		}
		frames = frames[min(n+1, len(frames)):]
	}
	p.serve()
}

// fetched goes on with a page that is in its buffer, for which the source took so long.
func (p *Pager) fetched(f *frame, took int64) {
	switch {
	case f.wanted:
		if !f.ahead {
			p.stats.FetchTime += uint64(took)
		}
		f.ahead = false
		f.chances = chanceMissed
		p.install(f, f.wantedWrite)
	case f.marker:
		f.state = pooled
		p.idle.add(f)
		p.serve()
	default:
		p.install(f, false)
	}
}

// written goes on with a page that was written back.
func (p *Pager) written(f *frame) {
	p.stats.Back++
	f.writing = false
	switch {
	case f.state == mapped: // for Sync
		p.release(f)
	case f.wanted:
		f.chances = chanceReturned
		p.stats.Returned++
		p.install(f, f.wantedWrite)
	default:
		p.idle.add(f)
	}
	p.serve()
}
