package emulator_test

import (
	"sync/atomic"
	"testing"

	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/vfio"
)

// TestNotify: a function in place of an eventfd is called once for each interrupt,
// and both can follow each other on one vector.
func TestNotify(t *testing.T) {
	checkFiles(t)
	r := newRaising(t, nil)
	var calls atomic.Int32
	notify := func(f func()) {
		t.Helper()
		if err := r.d.(vfio.InProcess).Notify(vfio.IRQMSIX, raisedVector, []func(){f}); err != nil {
			t.Fatal(err)
		}
	}
	want := func(what string, n int32) {
		t.Helper()
		if got := calls.Swap(0); got != n {
			t.Errorf("%s: %d calls, want %d", what, got, n)
		}
	}
	notify(func() { calls.Add(1) })
	r.nop()
	r.nop()
	want("two commands", 2)
	r.want("the eventfd before", false)

	r.mask(1)
	r.nop()
	want("masked", 0)
	r.mask(0)
	want("pending, unmasked", 1)

	notify(nil)
	r.nop()
	want("disconnected", 0)

	notify(func() { calls.Add(1) })
	r.connect(r.fd.FD())
	calls.Store(0) // the one that was pending
	r.nop()
	want("an eventfd in its place", 0)
	r.want("the eventfd", true)

	notify(func() { calls.Add(1) })
	if err := r.d.DisableIRQs(vfio.IRQMSIX); err != nil {
		t.Fatal(err)
	}
	calls.Store(0)
	r.nop()
	want("disabled", 0)
}

func TestNotifyRefuses(t *testing.T) {
	d := newDevice(t, nil)
	f := func() { t.Error("called") }
	for _, a := range []struct {
		index, start int
		calls        []func()
	}{
		{vfio.IRQMSIX, -1, []func(){f}}, {vfio.IRQMSIX, 16, []func(){f}}, {vfio.IRQMSIX, 15, []func(){f, f}},
		{vfio.IRQMSI, 0, []func(){f}}, {vfio.IRQReq, 0, []func(){f, f}}, {5, 0, []func(){f}},
	} {
		wantError(t, "Notify", d.Notify(a.index, a.start, a.calls), vfio.ErrNoSuchIRQ)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	wantError(t, "Notify after Close", d.Notify(vfio.IRQMSIX, 0, []func(){f}), vfio.ErrClosed)
}

// TestNotifierOfThread: a device that is no Poller can still call.
func TestNotifierOfThread(t *testing.T) {
	for _, engine := range []string{"inline", "thread"} {
		d, err := vfio.Open(t.Context(), emulator.Scheme+":?wire=loop&engine="+engine)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := d.(vfio.InProcess); !ok {
			t.Errorf("engine=%s: %T is no Notifier", engine, d)
		}
		if ok := d.(vfio.InProcess).Polled(); ok != (engine == "inline") {
			t.Errorf("engine=%s: Poller %v", engine, ok)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}
