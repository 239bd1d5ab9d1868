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
			r.complete(true, 0, 64, datasheet.StatusDone)
			if d, err := r.v.RecvWait(contextFor(t)); d != ds[0] || err != nil {
				t.Fatal(d, err)
			}
			armed := datasheet.EndpointPage(r.v.Number()) + datasheet.DoorbellRecvArm
			done := make(chan struct{})
			defer func() { <-done }()
			go func() {
				defer close(done)
				if vectors > 0 {
					for end := time.Now().Add(timeout); r.d.doorbell(armed) != datasheet.ArmWord(1) && time.Now().Before(end); {
						time.Sleep(time.Millisecond)
					}
				}
				r.d.with(func() {
					r.d.complete(r.v.Number(), true, 1, 5, datasheet.StatusDone)
					if v := r.d.admin.endpoints[r.v.Number()].RecvVector; v != datasheet.NoVector {
						r.d.interrupt(int(v))
					}
				})
			}()
			if d, err := r.v.RecvWait(contextFor(t)); d != ds[1] || err != nil || d.Length() != 5 {
				t.Error(d, err)
			}
			if got := r.d.doorbell(armed); vectors > 0 && got != datasheet.ArmWord(1) {
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
				r.d.set(datasheet.HealthOffset+datasheet.RegStatus, datasheet.DeviceReady|datasheet.DeviceFatal)
			})
		}, driver.ErrDeviceFault},
		"reset behind our back": {func(r *rig, _ context.CancelFunc) {
			r.d.with(func() { r.d.set(datasheet.HealthOffset+datasheet.RegStatus, datasheet.DeviceResetting) })
		}, driver.ErrDeviceFault},
		"VI destroyed": {func(r *rig, _ context.CancelFunc) { _ = r.v.Close(context.Background()) }, descriptors.ErrClosed},
		"NIC closed":   {func(r *rig, _ context.CancelFunc) { _ = r.n.Close() }, descriptors.ErrClosed},
		"garbage from the device": {func(r *rig, _ context.CancelFunc) {
			r.d.with(func() { r.d.post(datasheet.AdminEntry{Kind: 99}) })
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
			r.d.with(func() { r.d.set(datasheet.HealthOffset+datasheet.RegStatus, datasheet.DeviceReady) })
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
		for err == descriptors.ErrNotDone {
			err = done()
		}
		if !errors.Is(err, driver.ErrDeviceGone) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestWaiting: whatever is set, a wait ends with its context, and a message ends it.
func TestWaiting(t *testing.T) {
	for name, w := range map[string]driver.Waiting{
		"default":          {},
		"spin only":        {Spin: time.Hour},
		"let others run":   {Spin: -1, Yield: time.Hour},
		"sleep at once":    {Spin: -1, Yield: -1},
		"sleep briefly":    {Spin: -1, Yield: -1, Sleep: time.Nanosecond},
		"never sleep":      {Sleep: -1},
		"one after other":  {Spin: time.Microsecond, Yield: time.Microsecond, Sleep: time.Microsecond},
		"only let run":     {Spin: -1, Yield: -1, Sleep: -1},
		"long, then never": {Spin: time.Millisecond, Yield: time.Millisecond, Sleep: -1},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil, 0, 0)
			r.n.SetWaiting(w)
			d := descriptor(t, r.m, 0, 64)
			if err := r.v.PostRecv(d); err != nil {
				t.Fatal(err)
			}
			short, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
			defer cancel()
			if _, err := r.v.RecvWait(short); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			time.AfterFunc(5*time.Millisecond, func() { r.complete(true, 0, 64, datasheet.StatusDone) })
			if got, err := r.v.RecvWait(contextFor(t)); got != d || err != nil {
				t.Error(got, err)
			}
		})
	}
}
