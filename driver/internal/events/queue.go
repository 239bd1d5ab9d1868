package events

import (
	"sync"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// most bounds what a device that floods the host with events can pile up.
const most = 1024

// Queue holds events until the handler has taken them. The handler runs
// on a goroutine of its own, which lives as long as there are events: the call that
// found the event goes on, and the handler may call anything.
type Queue struct {
	// Log takes the last of count events for which there is no handler.
	Log func(e datasheet.Event, count uint64)
	// Closing ends the delivery once it is set.
	Closing *atomic.Bool

	mu         sync.Mutex
	handler    func(datasheet.Event)
	waiting    []datasheet.Event
	delivering bool
	dropped    uint64
	lines      limiter // of the goroutine that delivers
	// last says that the device has failed, nil as long as it has not. Each handler
	// is told once, after all else: told says that the present one was.
	last *datasheet.Event
	told bool
}

// Handle sets the handler, nil for none.
func (q *Queue) Handle(f func(datasheet.Event)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.handler, q.told = f, false
	if q.last != nil {
		q.start()
	}
}

// Put takes an event. It does not block.
func (q *Queue) Put(e datasheet.Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == most {
		q.dropped++
		return
	}
	q.waiting = append(q.waiting, e)
	q.start()
}

// End takes the event of the device's end. It may be called with locks of the data path held.
func (q *Queue) End(e datasheet.Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.last = &e
	q.start()
}

// start has the handler called. mu is held.
func (q *Queue) start() {
	if !q.delivering {
		q.delivering = true
		go q.deliver()
	}
}

func (q *Queue) deliver() {
	for {
		e, f, ok := q.next()
		switch {
		case !ok:
			return
		case f != nil:
			f(e)
		default:
			if count := q.lines.count(e); count > 0 {
				q.Log(e, count)
			}
		}
	}
}

// next takes the event that is to be delivered next, and its handler.
func (q *Queue) next() (e datasheet.Event, f func(datasheet.Event), ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.Closing.Load():
		q.waiting = nil
	case len(q.waiting) > 0:
		e, q.waiting = q.waiting[0], q.waiting[1:]
		return e, q.handler, true
	case q.last != nil && !q.told:
		q.told = true
		return *q.last, q.handler, true
	}
	q.delivering = false
	return e, nil, false
}

// Lost counts the events that the handler was too slow for.
func (q *Queue) Lost() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.dropped
}
