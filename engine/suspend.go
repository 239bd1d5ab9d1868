package engine

import "time"

// Suspend has what the present hooks would be asked about wait: on the wire, and in
// the host's queues, so that no frame is lost or overtaken. It ends with
// SetProcessor, or after limit with built-in behaviour. Call it in Exclusive.
func (e *Engine) Suspend(limit time.Duration) {
	e.look()
	if e.waiting == 0 {
		e.frozen = e.present()
	}
	e.waiting, e.until = e.hooks, e.now+limit
}

// resume ends a suspension. While it lasted no peer was silent: nobody listened.
func (e *Engine) resume() {
	if e.waiting != 0 {
		e.waiting = 0
		e.look()
		e.away = e.now - e.frozen
	}
}

// checkSuspension ends a suspension that lasts for too long.
func (e *Engine) checkSuspension() {
	if e.look(); e.now >= e.until {
		e.SetProcessor(nil, 0, 0)
	}
}
