package pager

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/trapeze-nic/trapeze/netmem/internal/readahead"
	"github.com/trapeze-nic/trapeze/netmem/internal/userfault"
)

const (
	// LeastPages is the number of pages that must fit into the local memory. One instruction of x86 can
	// need four at the same time, and there are several threads.
	LeastPages = 16
	// leastBuffers and mostBuffered bound the pool: a quarter of the local memory.
	leastBuffers = 4
	mostBuffered = 64 << 20
	// leastBlocks is the least number of runs in the pool, where there are runs.
	leastBlocks = 8
	// workers of each kind: how many requests of the kind are under way at a time.
	workers = 8
	// ticks of the watch in a deadline.
	ticks = 8
)

var (
	// ErrDeadline: the source did not answer in time.
	ErrDeadline = errors.New("the source of pages did not answer by the deadline")
	// ErrLimit: the limit of local memory is too low.
	ErrLimit = errors.New("too little local memory")
	// ErrSource: the source is not what a source is.
	ErrSource = errors.New("bad source of pages")
	// ErrRemoved: the mapper itself has punched pages out, with MADV_REMOVE.
	ErrRemoved = errors.New("the application has removed pages of the mapped memory")
	// ErrStopped: the pager has been told to stop.
	ErrStopped = errors.New("the pager has stopped")
)

// Config of a pager.
type Config struct {
	// Local is the part of the mapped memory, in bytes, that may be local: in its place, or in the
	// pool. At least LeastPages pages.
	Local int64
	// Ahead is the most that is read ahead of a sequential reader, in bytes; 0 for none.
	Ahead int64
	// Deadline for each request to the source, and for a page that waits for a buffer.
	Deadline time.Duration
	// Failed is told the reason, once, before the memory is ended.
	Failed func(error)
	// Alive is called at times while the pager does what it should.
	Alive func()
}

// Pager handles the faults of one mapping.
type Pager struct {
	source Source
	config Config
	size   int64 // of a page
	part   int64 // of the machine's pages
	pages  uint64
	began  time.Time
	memory *Memory

	ctx    context.Context
	cancel context.CancelCauseFunc

	demand, ahead, back chan *job

	mu      sync.Mutex
	changed sync.Cond
	err     error
	frames  []frame
	index   map[uint64]*frame
	free    []*frame
	buffers []byte
	used    buffers
	run     int // buffers of a block, the pages of a run at most
	block   int // that is looked at next
	idle    idle
	hole    hole
	hand    int
	mapped  int // pages
	most    int // of mapped
	jobs    []job
	rest    []*job // jobs that are not in use
	starved []wanted
	readers readahead.Detector
	ticket  uint64
	stats   Stats
}

// wanted is a page that a thread waits for, with what its frame says of that.
type wanted struct {
	page  uint64
	part  int64
	write bool
	since int64
}

// New makes a pager for a source, before there is a mapping. It fails with ErrSource, with
// ErrLimit, and with what the source says.
func New(source Source, c Config) (*Pager, error) {
	size, total := int64(source.PageSize()), source.Size()
	switch {
	case size < 4<<10 || size > 64<<10 || size&(size-1) != 0 || size%int64(os.Getpagesize()) != 0:
		return nil, fmt.Errorf("%w: its pages are of %d bytes", ErrSource, size)
	case total <= 0 || total%size != 0:
		return nil, fmt.Errorf("%w: its size is %d bytes, which is no number of pages of %d", ErrSource, total, size)
	case c.Deadline <= 0:
		return nil, fmt.Errorf("%w: the deadline is %v", ErrSource, c.Deadline)
	}
	// With so much all pages can be in their places, and the pool is a quarter more.
	limit := min(c.Local/size, max(total/size*4/3+leastBuffers, LeastPages))
	if limit < LeastPages {
		return nil, fmt.Errorf("%w: %d bytes, at least %d are needed", ErrLimit, c.Local, LeastPages*size)
	}
	count := max(min(limit/4, mostBuffered/size), leastBuffers)
	p := &Pager{source: source, config: c, size: size, part: int64(os.Getpagesize()), pages: uint64(total / size), began: time.Now(),
		frames: make([]frame, limit), index: make(map[uint64]*frame, limit), most: int(limit - count),
		jobs: make([]job, count+3*workers), starved: make([]wanted, 0, count)}
	p.changed.L = &p.mu
	p.idle.init()
	p.used, p.run = newBuffers(int(count)), int(max(min(runBytes/size, count/leastBlocks), 1))
	p.readers.Window = int(min(c.Ahead/size, count/2))
	p.stats.Limit, p.stats.PageSize = uint64(limit), uint64(size)
	var err error
	if p.buffers, err = source.Alloc(int(count * size)); err != nil {
		return nil, fmt.Errorf("memory for %d pages: %w", count, err)
	}
	if int64(len(p.buffers)) < count*size {
		return nil, fmt.Errorf("%w: it gave %d bytes of memory, not %d", ErrSource, len(p.buffers), count*size)
	}
	for i := range p.frames {
		p.free = append(p.free, &p.frames[i])
	}
	for i := range p.jobs {
		p.rest = append(p.rest, &p.jobs[i])
	}
	p.demand, p.ahead, p.back = make(chan *job, count), make(chan *job, count), make(chan *job, count)
	return p, nil
}

// Run handles the faults of a mapping until ctx ends, and returns its cause, or until the
// pager fails, and returns why. The memory has been ended then: its faults are not handled.
// To keep what was written, call Sync before.
func (p *Pager) Run(ctx context.Context, m *Memory) error {
	p.mu.Lock()
	p.memory = m
	p.ctx, p.cancel = context.WithCancelCause(ctx)
	p.mu.Unlock()
	for range workers {
		go p.work(p.demand)
		go p.work(p.ahead)
		go p.work(p.back)
	}
	go p.watch()
	go p.listen()
	<-p.ctx.Done()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fail(context.Cause(p.ctx))
	return p.err
}

// now is the time since the pager was made, in nanoseconds.
func (p *Pager) now() int64 { return int64(time.Since(p.began)) }

func (p *Pager) listen() {
	var events [64]userfault.Event
	for {
		n, err := p.memory.Object.Read(events[:])
		now := p.now()
		p.mu.Lock()
		if err != nil {
			p.fail(fmt.Errorf("read reports of faults: %w", err))
		}
		if p.err != nil {
			p.mu.Unlock()
			return
		}
		for i := range events[:n] {
			p.fault(&events[i], now)
		}
		p.mu.Unlock()
	}
}

// watch ends a pager whose source does not answer. It takes the lock, so that Alive also
// says that it is not held for ever.
func (p *Pager) watch() {
	tick := time.NewTicker(max(p.config.Deadline/ticks, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-tick.C:
		}
		p.mu.Lock()
		late := p.now() - int64(p.config.Deadline)
		for i := range p.jobs {
			if called := p.jobs[i].called.Load(); called != 0 && called < late {
				p.fail(fmt.Errorf("%w: to %s page %d, %v", ErrDeadline, p.jobs[i].verb(), p.jobs[i].page, p.config.Deadline))
			}
		}
		if len(p.starved) > 0 && p.starved[0].since < late {
			p.fail(fmt.Errorf("%w: no page was written back, so page %d has no place, %v", ErrDeadline, p.starved[0].page, p.config.Deadline))
		}
		failed := p.err != nil
		p.mu.Unlock()
		if failed {
			return
		}
		p.config.Alive()
	}
}

// fail ends the pager and the memory.
func (p *Pager) fail(err error) {
	if p.err != nil || err == nil {
		return
	}
	p.err = err
	p.config.Failed(err)
	if e := p.memory.End(); e != nil {
		p.err = errors.Join(err, e)
	}
	p.cancel(err)
	p.changed.Broadcast()
}

// Stats returns what was counted until now.
func (p *Pager) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Mapped = uint64(p.mapped)
	s.Pooled = uint64(len(p.index) - p.mapped)
	return s
}

// Stats has the counts of a pager.
type Stats struct {
	Missed    uint64 `json:"missed" help:"Faults that had to wait for the source." unit:"faults"`
	Returned  uint64 `json:"returned" help:"Faults that found their page in the pool." unit:"faults"`
	Written   uint64 `json:"written" help:"First writes to pages that were there." unit:"faults"`
	Ahead     uint64 `json:"ahead" help:"Pages that were read ahead." unit:"pages"`
	Unused    uint64 `json:"unused" help:"Pages read ahead that left before they were used." unit:"pages"`
	Evicted   uint64 `json:"evicted" help:"Pages that have left the mapped memory." unit:"pages"`
	Back      uint64 `json:"back" help:"Pages that were written back." unit:"pages"`
	Mapped    uint64 `json:"mapped" help:"Pages in the mapped memory." unit:"pages" kind:"gauge"`
	Pooled    uint64 `json:"pooled" help:"Local pages in buffers." unit:"pages" kind:"gauge"`
	Limit     uint64 `json:"limit" help:"Pages that may be local." unit:"pages" kind:"gauge"`
	PageSize  uint64 `json:"page_bytes" help:"Size of a page." unit:"bytes" kind:"gauge"`
	FetchTime uint64 `json:"fetch_ns" help:"Time that the source took for those in missed." unit:"nanoseconds"`
}
