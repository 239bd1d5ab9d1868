// Package events delivers the events of a device, and keeps peers from filling a log: events that they can cause
// with each message, such as messages that are not taken, get a line at once, and then one a
// second at most, with a count.
package events

import (
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// Every is the least time between two lines about such events of one VI.
const Every = time.Second

// mostKinds bounds the memory of a limiter: a device may name any VI.
const mostKinds = 1 << 12

// limiter says which events get a line in a log. Its zero value is ready, for one goroutine.
type limiter map[about]*kind

// about is the common part of the events that share a line.
type about struct {
	code     datasheet.EventCode
	endpoint uint32
}

type kind struct {
	next time.Time // when there may be another line
	held uint64    // events since the last one
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

// count returns how many events the line about e is for: itself, and those like it that have had none. It is 0 while
// there shall be no line, as there was one less than Every ago.
func (l *limiter) count(e datasheet.Event) uint64 {
	if !byMessage(e.Code) {
		return 1
	}
	if *l == nil || len(*l) >= mostKinds {
		*l = limiter{}
	}
	a, now := about{e.Code, e.Endpoint}, time.Now()
	k := (*l)[a]
	if k == nil {
		k = &kind{}
		(*l)[a] = k
	}
	k.held++
	if now.Before(k.next) {
		return 0
	}
	count := k.held
	k.held, k.next = 0, now.Add(Every)
	return count
}
