package netmem

import "context"

// job is a piece of a worker's work: to fetch a page ahead, or to write one back.
type job struct {
	what  task
	page  uint64 // of fetchAhead
	frame *frame // of the others
}

type task uint8

const (
	fetchAhead   task = iota // a page that may be read soon
	fetchRest                // what is missing of a frame
	write                    // a frame that stays
	writeAndFree             // a frame whose place is needed; with a cooperative cache, a host may keep its page
)

// ask gives a job to the workers, unless they have enough to do.
func (c *Client) ask(j job) bool {
	if c.closed { // the channel too, perhaps
		return false
	}
	select {
	case c.jobs <- j:
		return true
	default:
		return false
	}
}

// work does jobs until there are no more.
func (c *Client) work() {
	for j := range c.jobs {
		c.mu.Lock()
		switch j.what {
		case fetchAhead:
			c.fetchAhead(j.page)
		case fetchRest:
			c.rest(context.Background(), j.frame)
		case write:
			c.writeQueued(j.frame)
		case writeAndFree:
			c.writeQueued(j.frame)
			c.lodge(j.frame)
			c.leaving--
			if f := j.frame; f.state == valid && !f.dirty && !f.queued && f.pins == 0 {
				c.remove(f)
			}
			c.tell()
		}
		c.mu.Unlock()
	}
}

// writeQueued writes a frame back that was queued for it. No call waits for the outcome:
// an error with which a page has left the cache is kept for Sync.
func (c *Client) writeQueued(f *frame) {
	for f.pins > 0 || f.state == writing || f.state == loading {
		c.wait()
	}
	if f.state == valid && f.dirty {
		page := f.change.page
		if err := c.writeBack(context.Background(), f); err != nil && c.find(own, page) != f && c.failed == nil {
			c.failed = err
		}
	}
	f.queued = false
	c.tell()
}

// quiet waits until no frame is in use any more.
func (c *Client) quiet() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.frames {
		for f := &c.frames[i]; f.pins > 0 || f.state == loading || f.state == writing; {
			c.wait()
		}
	}
}
