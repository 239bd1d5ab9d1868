// Package events is the clock of the models: it has what is to be done in virtual time, and in which order.
package events

import (
	"math"
	"slices"

	"github.com/trapeze-nic/trapeze/lab/internal/profile"
)

// Never is the time of an event that is not to happen.
const Never = profile.Time(math.MaxInt64)

// Clock has events happen: the earliest first, of those at one time that of the lowest rank, and of one rank the one
// that was set first.
type Clock struct {
	Now   profile.Time
	queue []*Event // the next one last
}

// Event can happen again and again, each time that it is set.
type Event struct {
	do   []func()
	at   profile.Time // Never: it is not set
	rank int
}

// NewEvent makes an event that is not set: what is done then, one after the other.
func NewEvent(rank int, do ...func()) *Event { return &Event{do, Never, rank} }

// Set has an event happen at a time, and not at the one that it was set to before.
func (c *Clock) Set(e *Event, at profile.Time) {
	if e.at != Never {
		i := slices.Index(c.queue, e)
		c.queue = slices.Delete(c.queue, i, i+1)
	}
	if e.at = at; at == Never {
		return
	}
	i := len(c.queue)
	for i > 0 && (c.queue[i-1].at < at || c.queue[i-1].at == at && c.queue[i-1].rank <= e.rank) {
		i--
	}
	c.queue = slices.Insert(c.queue, i, e)
}

// At has something happen once.
func (c *Clock) At(at profile.Time, rank int, do func()) { c.Set(NewEvent(rank, do), at) }

// Next moves on to the next event, which happens; false if none is set.
func (c *Clock) Next() bool {
	last := len(c.queue) - 1
	if last < 0 {
		return false
	}
	e := c.queue[last]
	c.queue = c.queue[:last]
	c.Now, e.at = e.at, Never
	for _, do := range e.do {
		do()
	}
	return true
}
