package driver_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// Where the fake device has the pieces of its ring.
const (
	fakeSend  = 0
	fakeRecv  = 4 * datasheet.RingSlotSize
	fakeTable = 0x600
)

// withRings has the fake device make rings of 2 entries in its memory, which is not mapped.
func withRings(d *fakeDevice) {
	d.set(datasheet.IdentityOffset+datasheet.RegFeaturesLow, uint32(datasheet.FeatureRing))
	d.tamper = func(e *datasheet.AdminEntry) {
		if c := datasheet.Reply[datasheet.EndpointCreated](e); e.Kind == datasheet.EntryReply && c.Endpoint != 0 && d.admin.endpoints[c.Endpoint].Kind == datasheet.KindRing {
			c.Handle, c.Send, c.Recv, c.Table = 77, fakeSend, fakeRecv, fakeTable
		}
	}
}

func ringAttributes() driver.RingAttributes {
	return driver.RingAttributes{Reliability: datasheet.Unreliable, Ptag: 1, MaxPayload: 4096, SendDepth: 2, RecvDepth: 2}
}

func newFakeRing(t *testing.T) (*rig, *driver.Ring) {
	t.Helper()
	r := newRig(t, withRings, 0, 0)
	x, err := r.n.CreateRing(contextFor(t), ringAttributes())
	if err != nil {
		t.Fatal(err)
	}
	return r, x
}

// slot is a slot in the fake device's memory.
func (r *rig) slot(at int) *datasheet.RingSlot {
	return &datasheet.RingSlotsAt(r.d.sram.Bytes()[at:][:datasheet.RingSlotSize])[0]
}

// TestRingDeviceGone: waits and polls end when the device is pulled out.
func TestRingDeviceGone(t *testing.T) {
	r, x := newFakeRing(t)
	if err := x.PutRecv(0, datasheet.DataSegment{}); err != nil {
		t.Fatal(err)
	}
	if err := x.PostRecv(1); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := x.WaitRecv(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	early := driver.NewSignal()
	early.Set()
	if err := x.WaitAny(contextFor(t), early); err != nil {
		t.Error(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- x.WaitRecv(contextFor(t), nil) }()
	r.d.remove()
	// Memory of a device that is gone reads as all ones, as something to take does.
	if err := <-ended; err != nil && !errors.Is(err, descriptors.ErrDevice) {
		t.Error(err)
	}
	if _, err := x.RecvDone(); !errors.Is(err, driver.ErrDeviceGone) {
		t.Error(err)
	}
}
