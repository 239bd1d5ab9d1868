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
	of := &e.core.None
	if ep := e.core.Endpoint(endpoint); ep != nil {
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
	e.core.Carried = 0
	if e.core.Step++; e.core.Step >= e.core.NextLook {
		e.core.Look()
	}
	// Doorbells come first: a receive that was posted before a message was sent
	// must be there for it.
	if e.core.Bells.Last.Load() != 0 || len(e.core.Bells.Mapped) != 0 {
		worked = e.core.Bells.Take()
	}
	// What has been posted goes before what has come: a message that waits is late
	// already.
	if e.core.Events&core.Suspended != 0 {
		e.checkSuspension()
	}
	if e.core.Events&(core.OnReady|core.Leaving) != 0 {
		worked = e.core.Tx.Transmit() || worked
	}
	if e.core.Events&core.OnUnsettled != 0 {
		e.vis.SettleAll()
	}
	if of.Completed != before {
		worked = true
	} else {
		if e.core.Events&core.OnCells != 0 {
			worked = e.cells.Run() || worked
		}
		e.core.Handed = false
		worked = e.core.Rx.Receive(of) || worked
		if e.core.Events&core.OnCells != 0 {
			worked = e.cells.RunUpTo(0) || worked // bulk has had its turn in this round
		}
		if e.core.Events&core.InFlight != 0 && !e.core.Rx.Behind {
			// What the peer had to say before it took frames, or left, has been heard.
			e.vis.TakeFlights()
		}
	}
	if e.core.Events&afterFrames != 0 || e.core.Now >= e.core.NextTick {
		worked = e.finish() || worked
	}
	return worked
}

// finish ends a round: what was only gathered goes out.
func (e *Engine) finish() (worked bool) {
	if e.core.Events&core.OnUnsettled != 0 && !e.core.Handed {
		e.vis.SettleAll()
	}
	if e.core.Events&core.OnAcks != 0 {
		worked = e.core.Conns.SendAcks()
	}
	if e.core.Waiting == 0 && e.core.Due(&e.core.NextTick, core.TickEvery) {
		e.tick()
	}
	if e.core.Events&core.BrokenQueue != 0 {
		e.failQueues()
	}
	e.core.Tx.Flush()
	if e.core.Events&core.Interrupts != 0 {
		e.core.Interrupt()
	}
	return worked
}

// tick looks at the timers that may have run out.
func (e *Engine) tick() {
	e.vis.Tick()
	e.core.Requests.Tick()
	e.core.Setups.Tick()
	e.cells.Tick()
	if e.core.Due(&e.core.NextIdle, core.IdleEvery) {
		if !e.core.Rx.Behind {
			e.vis.CheckWires()
		}
		for _, ep := range e.core.Living {
			l := ep.Alive
			if l == nil || ep.Listed&core.OnBusy != 0 {
				continue // there is no peer, or timeouts looks after it
			}
			if e.core.Now-l.Heard > e.core.Timing.Probe {
				e.core.Conns.Probe(ep, l)
			}
			e.core.Conns.Expire(ep, l)
		}
	}
}

// failQueues ends the endpoints whose completion queue has lost an entry.
func (e *Engine) failQueues() {
	for ; len(e.core.CQs.Failed) > 0; e.core.CQs.Failed = e.core.CQs.Failed[1:] {
		cq := e.core.CQs.Failed[0]
		for _, ep := range e.core.Living {
			if ep.Send.CQ != cq && (ep.Recv.CQ != cq || ep.Recv.Named && ep.Recv.Source == nil) {
				continue
			}
			switch ep.State {
			case datasheet.StateConnected:
				e.core.Conns.Fail(ep, datasheet.StatusFlushed, datasheet.ResultResource, true)
			case datasheet.StateConnectPending:
				e.core.Setups.End(ep, datasheet.ResultResource)
				e.core.Conns.EnterError(ep, datasheet.StatusFlushed)
			case datasheet.StateIdle:
				e.core.Conns.EnterError(ep, datasheet.StatusFlushed)
			}
		}
	}
	e.core.Events &^= core.BrokenQueue
}
