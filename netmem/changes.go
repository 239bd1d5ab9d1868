package netmem

import (
	"sync"
)

// changes tells the calls that wait that a server is connected again, or the configuration has changed.
type changes struct {
	mu   sync.Mutex
	next chan struct{}
}

// watch returns a channel that is closed at the next change. Call it before checking the condition, or a
// change may be missed.
func (c *changes) watch() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next == nil {
		c.next = make(chan struct{})
	}
	return c.next
}

func (c *changes) tell() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next != nil {
		close(c.next)
		c.next = nil
	}
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
