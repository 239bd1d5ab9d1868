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

// Watch has show see each whole frame that is sent or has come, until it is called with nil. A
// reset does not end that. It reports whether it does: two cannot watch. Meanwhile payloads are
// copied into frames that are sent, in place of references. What comes in parts is taken when it
// is whole.
//
// The goroutine that steps the engine calls show. It must not keep the frame, nor change it, nor
// trust it: it has not been checked, and a peer may go on writing to it. After Watch(nil) show is
// not called any more.
func (e *Engine) Watch(show func(sent bool, frame []byte)) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.core.Show != nil && show != nil {
		return false
	}
	e.core.Show = show
	if e.core.Hooks &^= core.Watching; show != nil {
		e.core.Hooks |= core.Watching
	}
	e.core.Welcome()
	return true
}
