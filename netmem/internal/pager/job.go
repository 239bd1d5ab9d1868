package pager

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// errNoVictim would be a mistake of ours in counting.
var errNoVictim = errors.New("no page can leave the local memory")

// job is a request to the source. There are as many as buffers.
type job struct {
	frame   *frame
	page    uint64
	run     *run // nil if it is about one page
	write   bool
	at      int // in the buffers
	version uint64
	// called is when the source was, 0 before and after.
	called atomic.Int64
}

func (j *job) verb() string {
	if j.write {
		return "writing"
	}
	return "reading"
}

// start gives a job to the workers of a kind.
func (p *Pager) start(to chan *job, f *frame) {
	j := p.rest[len(p.rest)-1]
	p.rest = p.rest[:len(p.rest)-1]
	j.frame, j.run, j.page, j.write = f, nil, f.page, f.state != fetching
	j.at, j.version = f.buffer*int(p.size), f.version
	to <- j // there is room for all jobs
}

// startRun gives a run to the workers.
func (p *Pager) startRun(r *run) {
	j := p.rest[len(p.rest)-1]
	p.rest = p.rest[:len(p.rest)-1]
	f := r.frames[0]
	j.frame, j.run, j.page, j.write = nil, r, f.page, false
	j.at = f.buffer * int(p.size)
	p.ahead <- j // there is room for all jobs
}

// writeBack begins to write a page from its buffer.
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
		called := p.clock.now()
		j.called.Store(called)
		var err error
		count := 0
		switch {
		case j.run != nil:
			count, err = p.readPages(p.ctx, j)
		case j.write:
			j.version, err = p.source.WritePage(p.ctx, j.page, j.at, j.version)
		default:
			j.version, err = p.source.ReadPage(p.ctx, j.page, j.at)
		}
		answered := p.clock.now()
		p.mu.Lock()
		j.called.Store(0)
		switch {
		case p.err != nil:
		case j.run != nil:
			p.rest = append(p.rest, j)
			p.finishRun(j.run, count, err, called, answered)
		default:
			p.finish(j, err, called, answered)
		}
		p.mu.Unlock()
	}
}

// finish goes on with a page that was read or written.
func (p *Pager) finish(j *job, err error, called, answered int64) {
	f, version := j.frame, j.version
	p.rest = append(p.rest, j)
	switch {
	case j.write && err != nil:
		p.fail(fmt.Errorf("write page %d: %w", f.page, err))
	case j.write:
		f.version = version
		p.written(f)
	case err != nil && f.wanted:
		p.fail(fmt.Errorf("read page %d: %w", f.page, err))
	case err != nil:
		// It was read ahead. Who needs it will ask again, and be told.
		b := f.buffer
		p.forget(f)
		p.used.put(b)
		p.serve()
	default:
		f.version = version
		p.fetched(f, called, answered)
	}
}

// fetched goes on with a page that is in its buffer.
func (p *Pager) fetched(f *frame, called, answered int64) {
	demanded := f.wanted && !f.ahead
	switch {
	case f.wanted:
		f.ahead = false
		f.chances = chanceMissed
		missed := f.missed
		placed := p.install(f, f.wantedWrite)
		if demanded {
			p.account(missed, called, answered, placed)
		}
	case f.marker:
		f.state = pooled
		p.idle.add(f)
		p.serve()
	default:
		p.install(f, false)
	}
}

// account adds up what the parts of a fault took.
func (p *Pager) account(missed, called, answered, placed int64) {
	p.stats.HandlingTime += uint64(called - missed)
	p.stats.FetchTime += uint64(answered - called)
	p.stats.CopyTime += uint64(placed - answered)
	p.stats.ReadStamps += uint64(missed)
	p.stats.CopiedStamps += uint64(placed)
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
