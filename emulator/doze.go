package emulator

import (
	"sync"
	"sync/atomic"
)

// doze is how those wait who would have to poll again and again.
type doze struct {
	// waiting says that somebody waits: who posts looks at it without the lock.
	waiting atomic.Bool

	mu sync.Mutex
	// over is closed when there may be something to do; nil if nobody waits.
	over chan struct{}
}

// Doze is described at vfio.Dozer. Nil for a device that runs on a thread of its
// own: its interrupts are enough; and for one that is stepped together with the one
// at the other end of its wire, as long as one of them has timers to look after.
func (d *Device) Doze() <-chan struct{} {
	if d.thread {
		return nil
	}
	d.engine.Rest()
	if p := d.peer.Load(); p != nil && !(d.engine.Quiet() && p.engine.Quiet()) {
		return nil
	}
	d.doze.mu.Lock()
	defer d.doze.mu.Unlock()
	if d.doze.over == nil {
		d.doze.over = make(chan struct{})
		d.doze.waiting.Store(true)
		if d.closed.Load() {
			close(d.doze.over)
		} else {
			d.wire.SetWake(d.rouse)
		}
	}
	return d.doze.over
}

// Stir is described at vfio.Dozer. It also wakes those who sleep until there is
// something to do for the device at the other end of the wire, if they step both.
func (d *Device) Stir() {
	if d.doze.waiting.Load() {
		d.rouse()
	}
	if p := d.peer.Load(); p != nil && p.doze.waiting.Load() {
		p.rouse()
	}
}

// rouse ends every Doze.
func (d *Device) rouse() {
	d.doze.mu.Lock()
	defer d.doze.mu.Unlock()
	if d.doze.over == nil || d.thread {
		return
	}
	d.wire.SetWake(nil)
	d.doze.waiting.Store(false)
	select {
	case <-d.doze.over: // it was closed before anybody waited
	default:
		close(d.doze.over)
	}
	d.doze.over = nil
}
