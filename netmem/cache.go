package netmem

import (
	"math/bits"
)

type state uint8

const (
	free    state = iota
	loading       // its page is on the way, or is being written whole
	valid
	writing // valid, and on its way to the servers: it does not change
)

type frame struct {
	number int32
	chain  int32 // the next frame of its bucket, or -1
	state  state
	// used since the hand of the clock was here; ahead: fetched before it was wanted.
	used, ahead bool
	// dirty: it has been written here, and not yet on the servers. queued: a worker is
	// about to write it back.
	dirty, queued bool
	pins          int32 // who reads or writes it
	// since is cache.drops when the servers were asked for what is there, or were last sent it.
	since uint64
	// owner is the pool of a page that is kept for other clients, who have evicted it; 0 of the
	// client's own. last is when it was used last, in ticks.
	owner  uint64
	last   uint32
	change change
	err    error // of the last attempt to write it back
}

// settled reports whether the page of a frame is there, as the servers have it, and no call or worker has to do with it.
func (f *frame) settled() bool { return f.state == valid && !f.dirty && !f.queued && f.pins == 0 }

// cache is frames, found by page, and a clock that says which is needed least: each has a
// second chance.
type cache struct {
	frames  []frame
	buckets []int32
	unused  []int32 // stack of free frames
	hand    int
	lookout int // of the hand that looks for room for pages of others
	leaving int // frames that workers write back, or send to a host, in order to free them
	// mostLeaving bounds those. As many as reserve frames are freed before they are needed.
	mostLeaving, reserve int
	guests               int    // frames of pages of others
	tick                 uint32 // counts the time since the client was opened
	evicted              uint64 // pages that have left for others
	drops                uint64 // calls of Drop
}

func (c *cache) init(frames int) {
	c.mostLeaving = mostLeaving
	c.frames = make([]frame, frames)
	c.buckets = make([]int32, 1<<bits.Len(uint(frames)))
	for i := range c.buckets {
		c.buckets[i] = -1
	}
	for i := frames - 1; i >= 0; i-- {
		c.frames[i].number = int32(i)
		c.unused = append(c.unused, int32(i))
	}
}

// bucket of a page: multiplicative hashing (Knuth, TAOCP 3, 6.4).
func (c *cache) bucket(owner, page uint64) *int32 {
	return &c.buckets[(owner^page)*0x9e3779b97f4a7c15>>32&uint64(len(c.buckets)-1)]
}

// own is the owner of a client's own pages.
const own = 0

// find returns the frame of a page, nil if it has none.
func (c *cache) find(owner, page uint64) *frame {
	for i := *c.bucket(owner, page); i >= 0; i = c.frames[i].chain {
		if f := &c.frames[i]; f.change.page == page && f.owner == owner {
			return f
		}
	}
	return nil
}

// enter makes a free frame the one of a page.
func (c *cache) enter(f *frame, owner, page uint64, s state) {
	b := c.bucket(owner, page)
	f.change = change{page: page}
	f.state, f.used, f.ahead, f.dirty, f.err = s, false, false, false, nil
	f.owner, f.last, f.since = owner, c.tick, c.drops
	if owner != 0 {
		c.guests++
	}
	f.chain, *b = *b, f.number
}

// remove frees a frame that is not in use.
func (c *cache) remove(f *frame) {
	if f.owner != 0 {
		c.guests--
	}
	for at := c.bucket(f.owner, f.change.page); *at >= 0; at = &c.frames[*at].chain {
		if *at == f.number {
			*at = f.chain
			break
		}
	}
	f.dirty = false
	c.discard(f)
}

// discard frees a frame that is in no bucket.
func (c *cache) discard(f *frame) {
	f.state = free
	c.unused = append(c.unused, f.number)
}

// mostLeaving bounds the frames that are written back to be freed at the same time.
const mostLeaving = 32

// idle takes a frame out of the cache that is free, or clean and not needed; nil if there
// is none at once. Others that it meets it gives to leave: dirty ones, and those that a host may keep.
func (c *cache) idle(leave func(*frame) bool) *frame {
	for n := 0; len(c.unused) <= c.reserve && n < 2*len(c.frames) && c.leaving < c.mostLeaving; n++ {
		f := &c.frames[c.hand]
		c.hand = (c.hand + 1) % len(c.frames)
		switch {
		case f.state != valid || f.pins > 0 || f.queued:
		case f.used:
			f.used = false
		case f.dirty, c.reserve > 0 && len(c.unused) > 0:
			if leave(f) {
				c.leaving++
			}
		default:
			c.remove(f)
		}
	}
	if len(c.unused) == 0 {
		return nil
	}
	return c.takeUnused()
}

// takeUnused takes a free frame. The caller knows that there is one.
func (c *cache) takeUnused() *frame {
	f := &c.frames[c.unused[len(c.unused)-1]]
	c.unused = c.unused[:len(c.unused)-1]
	return f
}
