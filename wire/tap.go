package wire

import (
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/engine"
)

// TapFunc is shown a frame that crosses a Tap: one that is sent, or one that has come. It is
// called by the goroutine that uses the port, must not keep the frame, nor change it, and must
// not trust it: it has not been checked, and on a wire in shared memory its peer may go on
// writing to it.
type TapFunc func(sent bool, frame []byte)

// Tap is a wire that shows each whole frame, as it is on the wire. Frames do not come in parts
// through it, are acknowledged on wires that lose nothing too, and have their bytes with them
// where a peer could read them in place.
type Tap struct {
	inner Port
	parts engine.Progressive // inner, if frames may come in parts
	show  TapFunc

	frame []byte // reserved in inner
	shown bool   // the frame that has come and was not released
}

// NewTap has show see what crosses inner, which the Tap then owns.
func NewTap(inner Port, show TapFunc) *Tap {
	t := &Tap{inner: inner, show: show}
	t.parts, _ = inner.(engine.Progressive)
	return t
}

// MTU returns the largest frame in bytes.
func (t *Tap) MTU() int { return t.inner.MTU() }

// Checksum is inner's.
func (t *Tap) Checksum() bool { return t.inner.Checksum() }

// Reserve is described at engine.Port.
func (t *Tap) Reserve(n int) []byte {
	t.frame = t.inner.Reserve(n)
	return t.frame
}

// Commit is described at engine.Port.
func (t *Tap) Commit() {
	if t.frame != nil {
		t.show(true, t.frame)
		t.frame = nil
	}
	t.inner.Commit()
}

// Flush is described at engine.Port.
func (t *Tap) Flush() { t.inner.Flush() }

// Receive is described at engine.Port.
func (t *Tap) Receive() []byte {
	p := receiveWhole(t.inner, t.parts)
	if p != nil && !t.shown {
		t.shown = true
		t.show(false, p)
	}
	return p
}

// Release is described at engine.Port.
func (t *Tap) Release() {
	t.shown = false
	t.inner.Release()
}

// LinkUp is described at engine.Port.
func (t *Tap) LinkUp() bool { return t.inner.LinkUp() }

// SetWake is described at Port.
func (t *Tap) SetWake(wake func()) { t.inner.SetWake(wake) }

// OnLink is described at Port.
func (t *Tap) OnLink(link func()) { t.inner.OnLink(link) }

// SetLink is described at Port.
func (t *Tap) SetLink(up bool) { t.inner.SetLink(up) }

// Close closes the wire behind.
func (t *Tap) Close() error { return t.inner.Close() }

// Claim is described at Claimer.
func (t *Tap) Claim(mac descriptors.MAC) error { return claim(t.inner, mac) }

// Drained is described at Drainer.
func (t *Tap) Drained() bool { return drained(t.inner) }

// receiveWhole is Receive of a port for who does not know of parts: a frame that comes in parts
// comes when all of it is there. parts is the port, if it is engine.Progressive.
func receiveWhole(port Port, parts engine.Progressive) []byte {
	p := port.Receive()
	if p == nil || parts == nil {
		return p
	}
	n, aborted := parts.Arrived()
	switch {
	case aborted:
		port.Release()
		return nil
	case n < len(p):
		return nil
	}
	return p
}

// claim has a port make a claim, if it wants any.
func claim(port Port, mac descriptors.MAC) error {
	if c, ok := port.(Claimer); ok {
		return c.Claim(mac)
	}
	return nil
}

// drained asks a port whether it is drained, if it can tell.
func drained(port Port) bool {
	d, ok := port.(Drainer)
	return !ok || d.Drained()
}
