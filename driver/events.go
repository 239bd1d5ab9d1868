package driver

import (
	"log/slog"
	"sync"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/eventlog"
)

// maxEvents bounds what a device that floods the host with events can pile up.
const maxEvents = 1024

// eventQueue holds events until the handler has taken them. The handler runs
// on a goroutine of its own, which lives as long as there are events: whoever
// found the event goes on, and the handler may call anything.
type eventQueue struct {
	mu         sync.Mutex
	handler    func(descriptors.Event)
	waiting    []descriptors.Event
	delivering bool
	dropped    uint64
	lines      eventlog.Limiter
}

// OnEvent sets the handler of asynchronous events: connections lost, messages
// dropped, overruns, link changes (see descriptors.EventCode). It is called for
// one event at a time, in order, on another goroutine. Events are logged while
// there is no handler, those that a peer can cause with each message at most once a
// second and VI, with their count; nil restores that. A call that has begun goes on after
// OnEvent or Close returns.
func (n *NIC) OnEvent(f func(descriptors.Event)) {
	n.events.mu.Lock()
	defer n.events.mu.Unlock()
	n.events.handler = f
}

// event takes an event from the admin queue. It does not block.
func (n *NIC) event(e descriptors.Event) {
	switch e.Code {
	case descriptors.EventPostDescriptor, descriptors.EventCompletionProtect:
		n.descriptorLost(e.Endpoint, e.Descriptor)
	case descriptors.EventConnectionLost:
		n.connectionLost(e.Endpoint, e.Detail)
	case descriptors.EventCQOverrun:
		n.cqOverrun(e.CQ)
	}
	q := &n.events
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == maxEvents {
		q.dropped++
		return
	}
	q.waiting = append(q.waiting, e)
	if !q.delivering {
		q.delivering = true
		go n.deliver()
	}
}

func (n *NIC) deliver() {
	q := &n.events
	for {
		q.mu.Lock()
		if len(q.waiting) == 0 || n.closing.Load() {
			q.delivering = false
			q.waiting = nil
			q.mu.Unlock()
			return
		}
		e, f := q.waiting[0], q.handler
		q.waiting = q.waiting[1:]
		q.mu.Unlock()
		if f == nil {
			f = n.logEvent
		}
		f(e)
	}
}

func (n *NIC) logEvent(e descriptors.Event) {
	n.events.lines.Log(e, func(count uint64) { n.logEvents(e, count) })
}

// logEvents logs the last of count events.
func (n *NIC) logEvents(e descriptors.Event, count uint64) {
	level := slog.LevelWarn
	switch {
	case e.Code == descriptors.EventLink:
		level = slog.LevelInfo
	case e.Code == descriptors.EventConnectionLost && e.Detail == uint32(descriptors.ResultSuccess):
		level = slog.LevelDebug // the peer has disconnected, as peers do
	}
	n.log.Log(n.background, level, "device event", "event", e.Code.String(), "code", uint32(e.Code), "endpoint", e.Endpoint, "cq", e.CQ, "detail", e.Detail, "count", count)
}

// lost counts the events that the handler was too slow for.
func (q *eventQueue) lost() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.dropped
}
