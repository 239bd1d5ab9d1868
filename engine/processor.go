package engine

import (
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// SetProcessor has p asked at some hooks from now on, and ends what Suspend began.
// writes are the filter hooks whose programs may change frames. With an empty set
// there is built-in behaviour only. Call it in Exclusive.
func (e *Engine) SetProcessor(p Processor, at, writes HookSet) {
	e.program.resume()
	e.processor, e.hooks, e.writes = p, e.hooks&watching|at&^watching, at&writes
	for d, h := range [directions]Hook{HookFilterTransmit, HookFilterReceive} {
		if e.writes.Has(h) && e.copies[d] == nil {
			// The peer's frames may be larger than ours.
			e.copies[d] = aligned(datasheet.MaxMTU)
		}
	}
	for d := range directions {
		e.dma.choosePolicy(d)
	}
	e.welcome()
}

// Suspend has what the present hooks would be asked about wait: on the wire, and in
// the host's queues, so that no frame is lost or overtaken. It ends with
// SetProcessor, or after limit with built-in behaviour. Call it in Exclusive.
func (e *Engine) Suspend(limit time.Duration) {
	e.look()
	if e.waiting == 0 {
		e.frozen = e.present()
	}
	e.waiting, e.until = e.hooks&^watching, e.now+limit
	e.events |= suspended
}

// checkSuspension ends a suspension that lasts for too long.
func (e *Engine) checkSuspension() {
	if e.waiting == 0 {
		e.events &^= suspended
		return
	}
	if e.look(); e.now >= e.until {
		e.SetProcessor(nil, 0, 0)
	}
}
