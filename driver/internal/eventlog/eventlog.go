// Package eventlog keeps peers from filling a log: events that they can cause with
// each message, such as messages that are not taken, get a line at once, and then one a
// second at most, with a count.
package eventlog

import (
	"sync"
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// Every is the least time between two lines about such events of one VI.
const Every = time.Second

// Limiter says which events get a line in a log. The zero value is ready. Its methods
// may be called from several goroutines.
type Limiter struct {
	mu     sync.Mutex
	kinds  map[about]*kind
	closed bool
}

// about is the common part of the events that share a line.
type about struct {
	code     datasheet.EventCode
	endpoint uint32
}

// byMessage reports whether a peer can cause such events with each message: those of
// its messages, and of the descriptors that take them.
func byMessage(c datasheet.EventCode) bool {
	switch c {
	case datasheet.EventReceiveQueueEmpty, datasheet.EventPostDescriptor, datasheet.EventCompletionProtect:
		return true
	}
	return false
}

// kind is of events about which there was a line less than Every ago.
type kind struct {
	held  uint64             // since then
	write func(count uint64) // for the last of them
	timer *time.Timer
}

// Log calls write with a count of 1, unless there was a line about such events of the
// same VI less than Every ago. For all events of that time it calls the last one's write
// with their count when the time is over, on a goroutine of its own, or when the limiter
// is closed.
func (l *Limiter) Log(e datasheet.Event, write func(count uint64)) {
	if !byMessage(e.Code) || l.take(about{e.Code, e.Endpoint}, write) {
		write(1)
	}
}

// take reports whether an event is to be logged now. If not, it holds it.
func (l *Limiter) take(a about, write func(count uint64)) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return true
	}
	if k := l.kinds[a]; k != nil {
		k.held++
		k.write = write
		return false
	}
	if l.kinds == nil {
		l.kinds = map[about]*kind{}
	}
	l.kinds[a] = &kind{timer: time.AfterFunc(Every, func() { l.rest(a) })}
	return true
}

// rest writes what was held, or forgets events of which none has come for Every.
func (l *Limiter) rest(a about) {
	l.mu.Lock()
	k := l.kinds[a]
	if l.closed || k.held == 0 {
		delete(l.kinds, a)
		l.mu.Unlock()
		return
	}
	count, write := k.held, k.write
	k.held, k.write = 0, nil
	k.timer.Reset(Every)
	l.mu.Unlock()
	write(count)
}

// Close writes what is held. Events that come later are logged one by one: there
// cannot be many.
func (l *Limiter) Close() {
	l.mu.Lock()
	kinds := l.kinds
	l.kinds, l.closed = nil, true
	l.mu.Unlock()
	for _, k := range kinds {
		k.timer.Stop()
		if k.held > 0 {
			k.write(k.held)
		}
	}
}
