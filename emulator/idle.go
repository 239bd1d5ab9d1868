package emulator

import (
	"sync"
	"sync/atomic"
	"time"
)

// wakeInterval is the shortest time between two posts that wake a waiter, some hundred
// times what waking takes. A program that posts at a high rate polls, and would wake
// others for nothing again and again.
const wakeInterval = time.Millisecond

// idle lets callers of Poll sleep instead of polling again and again.
type idle struct {
	// waiting says that posts shall wake a waiter. Wake reads it without the lock.
	waiting atomic.Bool

	mu sync.Mutex
	// over is closed when there may be something to do; nil if there is no waiter.
	over chan struct{}
	// woken is the time when a post last woke a waiter, on the device's clock.
	woken time.Duration
}

// Idle is described at vfio.InProcess. It returns nil for a device that runs on a thread of
// its own, since its interrupts are enough, while transfers take their time, and for one that
// is stepped together with the device at the other end of its wire, as long as one of them
// has timers running.
func (d *Device) Idle() <-chan struct{} {
	if d.thread {
		return nil
	}
	d.engine.BeforeIdle()
	if d.engine.Moving() {
		return nil
	}
	if p := d.peer.Load(); p != nil && !(d.engine.Quiet() && p.engine.Quiet()) {
		return nil
	}
	d.idle.mu.Lock()
	defer d.idle.mu.Unlock()
	if d.idle.over == nil {
		d.idle.over = make(chan struct{})
		d.idle.waiting.Store(d.idle.woken == 0 || d.clock()-d.idle.woken > wakeInterval)
		d.regateBoth()
		if d.closed.Load() {
			close(d.idle.over)
		} else {
			d.wire.SetWake(func() { d.endIdle(false) })
		}
	}
	return d.idle.over
}

// endIdle wakes all waiters; posted says that a post is the reason.
func (d *Device) endIdle(posted bool) {
	d.idle.mu.Lock()
	defer d.idle.mu.Unlock()
	if posted {
		d.idle.woken = d.clock()
	}
	if d.idle.over == nil || d.thread {
		return
	}
	d.wire.SetWake(nil)
	d.idle.waiting.Store(false)
	d.regateBoth()
	select {
	case <-d.idle.over: // Idle found the device closed
	default:
		close(d.idle.over)
	}
	d.idle.over = nil
}
