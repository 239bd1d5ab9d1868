package engine

import (
	"time"

	"github.com/trapeze-nic/trapeze/engine/internal/core"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// SetProcessor has p asked at some hooks from now on, and ends what Suspend began.
// writes are the filter hooks whose programs may change frames. With an empty set
// there is built-in behaviour only. Call it in Exclusive.
func (e *Engine) SetProcessor(p core.Processor, at, writes core.HookSet) {
	e.core.Program.Resume()
	e.core.Processor, e.core.Hooks, e.core.Writes = p, e.core.Hooks&core.Watching|at&^core.Watching, at&writes
	for d, h := range [core.Directions]core.Hook{core.HookFilterTransmit, core.HookFilterReceive} {
		if e.core.Writes.Has(h) && e.core.Copies[d] == nil {
			// The peer's frames may be larger than ours.
			e.core.Copies[d] = core.Aligned(datasheet.MaxMTU)
		}
	}
	for d := range core.Directions {
		e.core.DMA.ChoosePolicy(d)
	}
	e.core.Welcome()
}

// Suspend has what the present hooks would be asked about wait: on the wire, and in
// the host's queues, so that no frame is lost or overtaken. It ends with
// SetProcessor, or after limit with built-in behaviour. Call it in Exclusive.
func (e *Engine) Suspend(limit time.Duration) {
	e.core.Look()
	if e.core.Waiting == 0 {
		e.core.Frozen = e.core.Present()
	}
	e.core.Waiting, e.core.Until = e.core.Hooks&^core.Watching, e.core.Now+limit
	e.core.Events |= core.Suspended
}

// checkSuspension ends a suspension that lasts for too long.
func (e *Engine) checkSuspension() {
	if e.core.Waiting == 0 {
		e.core.Events &^= core.Suspended
		return
	}
	if e.core.Look(); e.core.Now >= e.core.Until {
		e.SetProcessor(nil, 0, 0)
	}
}
