package driver

import (
	"errors"
	"log/slog"
	"sync"

	"github.com/trapeze-nic/trapeze/driver/internal/eventlog"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// maxEvents bounds what a device that floods the host with events can pile up.
const maxEvents = 1024

// eventQueue holds events until the handler has taken them. The handler runs
// on a goroutine of its own, which lives as long as there are events: the call that
// found the event goes on, and the handler may call anything.
type eventQueue struct {
	mu         sync.Mutex
	handler    func(datasheet.Event)
	waiting    []datasheet.Event
	delivering bool
	dropped    uint64
	lines      eventlog.Limiter
	// last says that the device has failed, nil as long as it has not. Each handler
	// is told once, after all else: told says that the present one was.
	last *datasheet.Event
	told bool
}

// OnEvent sets the handler of asynchronous events: connections lost, messages
// dropped, overruns, link changes (see datasheet.EventCode). It is called for
// one event at a time, in order, on another goroutine. Events are logged while
// there is no handler, those that a peer can cause with each message at most once a
// second and VI, with their count; nil restores that. A call that has begun goes on after
// OnEvent or Close returns.
//
// EventCatastrophic says that the device has failed or is gone. It comes once, also
// to a handler that is set later, whether or not the program uses the NIC: within a
// second, and within some more if a vfio-user server lives on without its device.
func (n *NIC) OnEvent(f func(datasheet.Event)) {
	q := &n.events
	q.mu.Lock()
	defer q.mu.Unlock()
	q.handler, q.told = f, false
	if q.last != nil {
		n.startDelivery()
	}
}

// event takes an event from the admin queue. It does not block.
func (n *NIC) event(e datasheet.Event) {
	switch e.Code {
	case datasheet.EventPostDescriptor, datasheet.EventCompletionProtect:
		if ep := n.endpoint(e.Endpoint); ep != nil {
			ep.queues.lose(e.Descriptor) // the caller learns it from the queue
		}
	case datasheet.EventConnectionLost:
		if ep := n.endpoint(e.Endpoint); ep != nil {
			ep.ending.told(e.Detail)
		}
	case datasheet.EventCQOverrun:
		if c := n.CQ(e.CQ); c != nil {
			c.end(n.error("poll CQ", ErrCQOverrun))
		}
	case datasheet.EventCatastrophic:
		_ = n.fail(&FaultError{Code: e.Detail})
		return
	}
	q := &n.events
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == maxEvents {
		q.dropped++
		return
	}
	q.waiting = append(q.waiting, e)
	n.startDelivery()
}

// catastrophe tells of the device's end. It may be called with locks of the data
// path held.
func (n *NIC) catastrophe(reason error) {
	e := datasheet.Event{Code: datasheet.EventCatastrophic, CQ: datasheet.NoCQ}
	if fault, ok := errors.AsType[*FaultError](reason); ok {
		e.Detail = fault.Code
	}
	n.events.mu.Lock()
	defer n.events.mu.Unlock()
	n.events.last = &e
	n.startDelivery()
}

// startDelivery has the handler called. The lock of the events is held.
func (n *NIC) startDelivery() {
	if !n.events.delivering {
		n.events.delivering = true
		go n.deliver()
	}
}

func (n *NIC) deliver() {
	for {
		e, f, ok := n.nextEvent()
		if !ok {
			return
		}
		if f == nil {
			f = n.logEvent
		}
		f(e)
	}
}

// nextEvent takes the event that is to be delivered next, and its handler.
func (n *NIC) nextEvent() (e datasheet.Event, f func(datasheet.Event), ok bool) {
	q := &n.events
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case n.closing.Load():
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

func (n *NIC) logEvent(e datasheet.Event) {
	n.events.lines.Log(e, func(count uint64) { n.logEvents(e, count) })
}

// logEvents logs the last of count events: at level debug what belongs to every
// program, a link that changes and a peer that disconnects. A link that goes down breaks
// no connection; what it does break has a warning of its own.
func (n *NIC) logEvents(e datasheet.Event, count uint64) {
	level := slog.LevelWarn
	switch e.Code {
	case datasheet.EventCatastrophic:
		return // fail has logged why
	case datasheet.EventLink:
		level = slog.LevelDebug
	case datasheet.EventConnectionLost:
		if e.Detail == uint32(datasheet.ResultSuccess) {
			level = slog.LevelDebug
		}
	case datasheet.EventCQOverrun:
		level = slog.LevelError
	}
	about := []any{"vi", e.Endpoint, "detail", e.DetailText(), "count", count}
	if e.CQ != datasheet.NoCQ {
		about = append(about, "cq", e.CQ)
	}
	n.log.Log(n.background, level, e.Code.String(), about...)
}

// lost counts the events that the handler was too slow for.
func (q *eventQueue) lost() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.dropped
}
