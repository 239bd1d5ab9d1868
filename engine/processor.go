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
	e.Program.Resume()
	e.Processor, e.Hooks, e.Writes = p, e.Hooks&core.Watching|at&^core.Watching, at&writes
	for d, h := range [core.Directions]core.Hook{core.HookFilterTransmit, core.HookFilterReceive} {
		if e.Writes.Has(h) && e.Copies[d] == nil {
			// The peer's frames may be larger than ours.
			e.Copies[d] = core.Aligned(datasheet.MaxMTU)
		}
	}
	for d := range core.Directions {
		e.DMA.ChoosePolicy(d)
	}
	e.RefreshPlain()
}

// Suspend has what the present hooks would be asked about wait: on the wire, and in
// the host's queues, so that no frame is lost or overtaken. It ends with
// SetProcessor, or after limit with built-in behaviour. Call it in Exclusive.
func (e *Engine) Suspend(limit time.Duration) {
	e.Look()
	if e.Waiting == 0 {
		e.Frozen = e.Present()
	}
	e.Waiting, e.Until = e.Hooks&^core.Watching, e.Now+limit
	e.Events |= core.Suspended
}

// checkSuspension ends a suspension that lasts for too long.
func (e *Engine) checkSuspension() {
	if e.Waiting == 0 {
		e.Events &^= core.Suspended
		return
	}
	if e.Look(); e.Now >= e.Until {
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
	if e.Show != nil && show != nil {
		return false
	}
	e.Show = show
	if e.Hooks &^= core.Watching; show != nil {
		e.Hooks |= core.Watching
	}
	e.RefreshPlain()
	return true
}
