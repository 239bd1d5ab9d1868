package qtest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/qemutest"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/vfio"
)

func TestInterrupts(t *testing.T) {
	leaktest.Check(t)
	m := qemutest.Start(t, "igb")
	d := open(t, m, 0)
	i := newIGB(t, d)
	var events [3]*vfio.Eventfd
	var fds []int
	for n := range events {
		e, err := vfio.NewEventfd()
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		events[n] = e
		fds = append(fds, e.FD())
	}
	signalled := func(n int, within time.Duration) bool {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		return events[n].Wait(ctx) == nil
	}
	const first = 2
	if err := d.SetIRQs(vfio.IRQMSIX, first, fds); err != nil {
		t.Fatal(err)
	}
	i.set(igbGPIE, 1<<4)     // a vector for each cause
	i.set(igbEIAC, 7<<first) // which its message clears
	i.set(igbEIMS, 7<<first)
	for round := range 20 {
		n := round % len(events)
		i.set(igbEIMS, 7<<first)
		i.set(igbEICS, 1<<(first+n))
		if !signalled(n, timeout) {
			t.Fatalf("round %d: no message of vector %d", round, first+n)
		}
	}
	quiet := func(n int, why string) {
		t.Helper()
		if err := events[n].Drain(); err != nil { // of a message that took long
			t.Fatal(err)
		}
		i.set(igbEIMS, 7<<first)
		i.set(igbEICS, 1<<(first+n))
		if signalled(n, 20*time.Millisecond) {
			t.Error("a message of a vector " + why)
		}
	}
	if err := d.SetIRQs(vfio.IRQMSIX, first+1, []int{-1}); err != nil {
		t.Fatal(err)
	}
	quiet(1, "that is disconnected")
	if err := d.DisableIRQs(vfio.IRQMSIX); err != nil {
		t.Fatal(err)
	}
	quiet(0, "that is disabled")
	if err := d.SetIRQs(vfio.IRQMSIX, first, fds[:1]); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "an interrupt after they were disabled", func() bool {
		i.set(igbEIMS, 1<<first)
		i.set(igbEICS, 1<<first)
		return signalled(0, 50*time.Millisecond)
	})
	if err := d.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	quiet(0, "that a reset has disconnected")
	for _, c := range []struct{ index, start, n int }{{vfio.IRQMSIX, -1, 1}, {vfio.IRQMSIX, 9, 2}, {vfio.IRQMSIX, 11, 0}, {vfio.IRQMSI, 0, 1}, {5, 0, 1}, {-1, 0, 0}} {
		if err := d.SetIRQs(c.index, c.start, fds[:c.n]); !errors.Is(err, vfio.ErrNoSuchIRQ) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
