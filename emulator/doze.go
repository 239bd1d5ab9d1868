package emulator

import (
	"sync"
	"sync/atomic"
	"time"
)

// stirRest is for how long posts do not wake those who have just been woken by one:
// as long as that takes some hundred times. Who posts at a high rate polls, and
// would wake them for nothing again and again.
const stirRest = time.Millisecond

// doze is how those wait who would have to poll again and again.
type doze struct {
	// waiting says that posts shall wake somebody: who posts looks at it without the
	// lock.
	waiting atomic.Bool

	mu sync.Mutex
	// over is closed when there may be something to do; nil if nobody waits.
	over chan struct{}
	// stirred is when a post has woken somebody last, on the device's clock.
	stirred time.Duration
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
		d.doze.waiting.Store(d.doze.stirred == 0 || d.clock()-d.doze.stirred > stirRest)
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
	d.stir()
	if p := d.peer.Load(); p != nil {
		p.stir()
	}
}

func (d *Device) stir() {
	if !d.doze.waiting.Load() {
		return
	}
	d.doze.mu.Lock()
	defer d.doze.mu.Unlock()
	d.doze.stirred = d.clock()
	d.endDoze()
}

// rouse ends every Doze.
func (d *Device) rouse() {
	d.doze.mu.Lock()
	defer d.doze.mu.Unlock()
	d.endDoze()
}

// endDoze is rouse with the lock of doze held.
func (d *Device) endDoze() {
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
