package emulator

import "sync"

// doze is how those wait who would have to poll again and again.
type doze struct {
	mu sync.Mutex
	// over is closed when there may be something to do; nil if nobody waits.
	over chan struct{}
}

// Doze is for whoever has polled in vain and goes to sleep. It returns a channel
// that is closed when a frame arrives from outside, so that Poll has something to
// do, or the device is closed. What came before Doze returns closes nothing: poll
// once more before sleeping. Nil, which never comes, for a device that runs on a
// thread of its own: its interrupts are enough; and for one that is stepped together
// with the one at the other end of its wire, whose doorbells wake nobody.
func (d *Device) Doze() <-chan struct{} {
	if d.thread {
		return nil
	}
	d.engine.Rest()
	if d.peer.Load() != nil {
		return nil
	}
	d.doze.mu.Lock()
	defer d.doze.mu.Unlock()
	if d.doze.over == nil {
		d.doze.over = make(chan struct{})
		if d.closed.Load() {
			close(d.doze.over)
		} else {
			d.wire.SetWake(d.rouse)
		}
	}
	return d.doze.over
}

// rouse ends every Doze.
func (d *Device) rouse() {
	d.doze.mu.Lock()
	defer d.doze.mu.Unlock()
	if d.doze.over == nil || d.thread {
		return
	}
	d.wire.SetWake(nil)
	select {
	case <-d.doze.over: // it was closed before anybody waited
	default:
		close(d.doze.over)
	}
	d.doze.over = nil
}
