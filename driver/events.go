package driver

import (
	"log/slog"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

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
func (n *NIC) OnEvent(f func(datasheet.Event)) { n.events.Handle(f) }

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
	n.events.Put(e)
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
