package igb_test

import (
	"errors"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/fakeigb"
	"github.com/trapeze-nic/trapeze/ethernet"
)

// TestRemovedReadsZero: where the memory of a function that was removed reads as zero, as in
// QEMU, its configuration space tells.
func TestRemovedReadsZero(t *testing.T) {
	d := newFake(t, fakeigb.Options{})
	p := open(t, d, ethernet.Options{})
	d.With(func() {
		d.OnRead = func(o uint64, v uint32) uint32 {
			if o == fakeigb.STATUS {
				v = 0
			}
			return v
		}
	})
	if link, err := p.Link(); err != nil || link.Up {
		t.Errorf("no bit of STATUS is set: %+v, %v", link, err)
	}
	d.With(func() { d.GoneZero = true })
	d.Remove()
	if _, err := p.Link(); !errors.Is(err, ethernet.ErrDeviceGone) {
		t.Errorf("link: %v", err)
	}
	if _, err := p.Queue(0).Receive(make([]ethernet.Frame, 1)); !errors.Is(err, ethernet.ErrDeviceGone) {
		t.Errorf("receive: %v", err)
	}
	if err := p.Close(); err != nil || d.Log().BackendResets != 0 {
		t.Errorf("close: %v, %d resets of what is gone", err, d.Log().BackendResets)
	}
}
