package engine

import (
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// SetProcessor has p asked at some hooks from now on, and ends what Suspend began.
// writes are the filter hooks whose programs may change frames. With an empty set
// there is built-in behaviour only. Call it in Exclusive.
func (e *Engine) SetProcessor(p Processor, at, writes HookSet) {
	e.core.program.resume()
	e.core.processor, e.core.hooks, e.core.writes = p, e.core.hooks&watching|at&^watching, at&writes
	for d, h := range [directions]Hook{HookFilterTransmit, HookFilterReceive} {
		if e.core.writes.Has(h) && e.core.copies[d] == nil {
			// The peer's frames may be larger than ours.
			e.core.copies[d] = aligned(datasheet.MaxMTU)
		}
	}
	for d := range directions {
		e.core.dma.choosePolicy(d)
	}
	e.core.welcome()
}

// Suspend has what the present hooks would be asked about wait: on the wire, and in
// the host's queues, so that no frame is lost or overtaken. It ends with
// SetProcessor, or after limit with built-in behaviour. Call it in Exclusive.
func (e *Engine) Suspend(limit time.Duration) {
	e.core.look()
	if e.core.waiting == 0 {
		e.core.frozen = e.core.present()
	}
	e.core.waiting, e.core.until = e.core.hooks&^watching, e.core.now+limit
	e.core.events |= suspended
}

// checkSuspension ends a suspension that lasts for too long.
func (e *Engine) checkSuspension() {
	if e.core.waiting == 0 {
		e.core.events &^= suspended
		return
	}
	if e.core.look(); e.core.now >= e.core.until {
		e.SetProcessor(nil, 0, 0)
	}
}
