package engine

import (
	"github.com/trapeze-nic/trapeze/engine/internal/core"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// Step does one round of work: it takes frames, doorbells and timers as they
// come and sends what can be sent. It reports whether there was anything to do.
// If another goroutine is in the engine, it returns false at once.
func (e *Engine) Step() bool {
	worked, _ := e.StepFor(0, false)
	return worked
}

// StepFor is Step that ends once a receive, or a send, of an endpoint has completed, and reports whether
// one has. Endpoint 0 is none.
func (e *Engine) StepFor(endpoint uint32, receive bool) (worked, completed bool) {
	if !e.mu.TryLock() {
		return false, false
	}
	// It is deferred: host memory that another process has taken away ends a round
	// with a panic, which the owner of the engine catches, and then calls Reset.
	defer e.mu.Unlock()
	of := &e.None
	if ep := e.Endpoint(endpoint); ep != nil {
		if of = &ep.Send; receive {
			of = &ep.Recv
		}
	}
	before := of.Completed
	worked = e.round(of)
	completed = of.Completed != before
	return worked || completed, completed
}

// afterFrames are the events that a round looks at once it has taken frames.
const afterFrames = core.OnUnsettled | core.OnAcks | core.BrokenQueue | core.Unflushed | core.Interrupts

// round does what there is to do, up to a completion of queue of. Without events it costs a
// look at the wire, and one at doorbells that others may have stored.
func (e *Engine) round(of *core.WorkQueue) (worked bool) {
	before := of.Completed
	e.DirectOps = 0
	if e.Clock.Step++; e.Clock.Step >= e.NextLook {
		e.Look()
	}
	// Doorbells come first: a receive that was posted before a message was sent
	// must be there for it.
	if e.Bells.Last.Load() != 0 || len(e.Bells.Mapped) != 0 {
		worked = e.Bells.Take()
	}
	// What has been posted goes before what has come: a message that waits is late
	// already.
	if e.Events&core.Suspended != 0 {
		e.checkSuspension()
	}
	if e.Events&(core.OnReady|core.Leaving) != 0 {
		worked = e.Tx.Transmit() || worked
	}
	if e.Events&core.OnUnsettled != 0 {
		e.vis.SettleAll()
	}
	if of.Completed != before {
		worked = true
	} else {
		if e.Events&core.OnCells != 0 {
			worked = e.cells.Run() || worked
		}
		e.Delivered = false
		worked = e.Rx.Receive(of) || worked
		if e.Events&core.OnCells != 0 {
			worked = e.cells.RunUpTo(0) || worked // bulk has had its turn in this round
		}
		if e.Events&core.InFlight != 0 && !e.Rx.Behind {
			// What the peer had to say before it took frames, or left, has been heard.
			e.vis.TakeFlights()
		}
	}
	if e.Events&afterFrames != 0 || e.Now >= e.NextTick {
		worked = e.finish() || worked
	}
	return worked
}

// finish ends a round: what was only gathered goes out.
func (e *Engine) finish() (worked bool) {
	if e.Events&core.OnUnsettled != 0 && !e.Delivered {
		e.vis.SettleAll()
	}
	if e.Events&core.OnAcks != 0 {
		worked = e.Conns.SendAcks()
	}
	if e.Waiting == 0 && e.Due(&e.NextTick, core.TickEvery) {
		e.tick()
	}
	if e.Events&core.BrokenQueue != 0 {
		e.failQueues()
	}
	e.Tx.Flush()
	if e.Events&core.Interrupts != 0 {
		e.Interrupt()
	}
	return worked
}

// tick looks at the timers that may have run out.
func (e *Engine) tick() {
	e.vis.Tick()
	e.Requests.Tick()
	e.Setups.Tick()
	e.cells.Tick()
	if e.Due(&e.NextIdle, core.IdleEvery) {
		if !e.Rx.Behind {
			e.vis.CheckWires()
		}
		for _, ep := range e.Living {
			l := ep.Alive
			if l == nil || ep.Listed&core.OnBusy != 0 {
				continue // there is no peer, or timeouts looks after it
			}
			if e.Now-l.Heard > e.Timing.Probe {
				e.Conns.Probe(ep, l)
			}
			e.Conns.Expire(ep, l)
		}
	}
}

// failQueues ends the endpoints whose completion queue has lost an entry.
func (e *Engine) failQueues() {
	for ; len(e.CQs.Failed) > 0; e.CQs.Failed = e.CQs.Failed[1:] {
		cq := e.CQs.Failed[0]
		for _, ep := range e.Living {
			if ep.Send.CQ != cq && (ep.Recv.CQ != cq || ep.Recv.Named && ep.Recv.Source == nil) {
				continue
			}
			switch ep.State {
			case datasheet.StateConnected:
				e.Conns.Fail(ep, datasheet.StatusFlushed, datasheet.ResultResource, true)
			case datasheet.StateConnectPending:
				e.Setups.End(ep, datasheet.ResultResource)
				e.Conns.EnterError(ep, datasheet.StatusFlushed)
			case datasheet.StateIdle:
				e.Conns.EnterError(ep, datasheet.StatusFlushed)
			}
		}
	}
	e.Events &^= core.BrokenQueue
}
