package driver_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
)

// TestWaitInterrupt: a wait arms the doorbell with what was taken, sleeps, and
// is woken by the interrupt.
func TestWaitInterrupt(t *testing.T) {
	for name, vectors := range map[string]int{"no vectors": 0, "one vector": 1, "several": 4} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(d *fakeDevice) { d.vectors = vectors }, 0, 0)
			ds := r.descriptors(t, 3)
			if n, err := r.v.PostRecvBatch(ds); n != 3 || err != nil {
				t.Fatal(n, err)
			}
			r.complete(true, 0, 64, descriptors.StatusDone)
			if d, err := r.v.RecvWait(contextFor(t)); d != ds[0] || err != nil {
				t.Fatal(d, err)
			}
			armed := descriptors.EndpointPage(r.v.Number()) + descriptors.DoorbellRecvArm
			done := make(chan struct{})
			defer func() { <-done }()
			go func() {
				defer close(done)
				if vectors > 0 {
					for end := time.Now().Add(patience); r.d.doorbell(armed) != descriptors.ArmWord(1) && time.Now().Before(end); {
						time.Sleep(time.Millisecond)
					}
				}
				r.d.with(func() {
					r.d.complete(r.v.Number(), true, 1, 5, descriptors.StatusDone)
					if v := r.d.admin.endpoints[r.v.Number()].RecvVector; v != descriptors.NoVector {
						r.d.interrupt(int(v))
					}
				})
			}()
			if d, err := r.v.RecvWait(contextFor(t)); d != ds[1] || err != nil || d.Length() != 5 {
				t.Error(d, err)
			}
			if got := r.d.doorbell(armed); vectors > 0 && got != descriptors.ArmWord(1) {
				t.Errorf("armed with %#x", got)
			}
		})
	}
}

func TestWaitEnds(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(*rig, context.CancelFunc)
		want error
	}{
		"canceled": {func(_ *rig, cancel context.CancelFunc) { cancel() }, context.Canceled},
		"removed":  {func(r *rig, _ context.CancelFunc) { r.d.remove() }, driver.ErrDeviceGone},
		"fatal": {func(r *rig, _ context.CancelFunc) {
			r.d.with(func() {
				r.d.set(descriptors.HealthOffset+descriptors.RegStatus, descriptors.DeviceReady|descriptors.DeviceFatal)
			})
		}, driver.ErrDeviceFault},
		"reset behind our back": {func(r *rig, _ context.CancelFunc) {
			r.d.with(func() { r.d.set(descriptors.HealthOffset+descriptors.RegStatus, descriptors.DeviceResetting) })
		}, driver.ErrDeviceFault},
		"VI destroyed": {func(r *rig, _ context.CancelFunc) { _ = r.v.Destroy(context.Background()) }, driver.ErrClosed},
		"NIC closed":   {func(r *rig, _ context.CancelFunc) { _ = r.n.Close() }, driver.ErrClosed},
		"garbage from the device": {func(r *rig, _ context.CancelFunc) {
			r.d.with(func() { r.d.post(descriptors.AdminEntry{Kind: 99}) })
		}, driver.ErrProtocol},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil, 0, 0)
			if err := r.v.PostSend(r.descriptors(t, 1)[0]); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			time.AfterFunc(10*time.Millisecond, func() { c.end(r, cancel) })
			if d, err := r.v.SendWait(ctx); d != nil || !errors.Is(err, c.want) {
				t.Errorf("%v, %v", d, err)
			}
			// Close waits for the reset, which this state would never end.
			r.d.with(func() { r.d.set(descriptors.HealthOffset+descriptors.RegStatus, descriptors.DeviceReady) })
		})
	}
}

// TestDoneNoticesRemoval: also who only polls learns that the device is gone.
func TestDoneNoticesRemoval(t *testing.T) {
	r := newRig(t, nil, 8, 0)
	if err := r.v.PostSend(r.descriptors(t, 1)[0]); err != nil {
		t.Fatal(err)
	}
	r.d.remove()
	for name, done := range map[string]func() error{
		"queue": func() error { _, err := r.v.SendDone(); return err },
		"CQ":    func() error { _, err := r.sendCQ.Done(); return err },
	} {
		err := done()
		for err == driver.ErrNotDone {
			err = done()
		}
		if !errors.Is(err, driver.ErrDeviceGone) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
