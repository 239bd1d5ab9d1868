package driver_test

import (
	"context"
	"errors"
	"testing"
	"time"

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
