package via_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/via"
	"github.com/trapeze-nic/trapeze/via/viatest"
)

// TestSurpriseRemoval pulls a NIC out: its registers read as all ones. Every
// call on it ends with an error, and the NIC at the other end goes on.
func TestSurpriseRemoval(t *testing.T) {
	ctx := viatest.Context(t)
	deviceA, deviceB, err := emulator.Pair()
	if err != nil {
		t.Fatal(err)
	}
	var nics [2]*via.NIC
	for i, device := range []*emulator.Device{deviceA, deviceB} {
		d, err := driver.New(ctx, device, driver.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if nics[i], err = via.New(ctx, via.Driver(d)); err != nil {
			t.Fatal(err)
		}
		defer nics[i].Close()
	}
	p := viatest.NewPair(nics[0], nics[1])
	x, y := p.Connect(t, viatest.Setup{})
	if err := errors.Join(x.VI.PostRecv(x.Prepare(t, x.Recv[0], 0, 100)), y.VI.PostRecv(y.Prepare(t, y.Recv[0], 0, 100))); err != nil {
		t.Fatal(err)
	}
	lost := make(chan via.AsyncError, 1)
	nics[1].OnError(func(e via.AsyncError) {
		if e.Code == via.AsyncConnectionLost {
			lost <- e
		}
	})
	deviceA.Remove()

	wantDevice := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, via.ErrDevice) || !errors.Is(err, driver.ErrDeviceGone) {
			t.Errorf("%s: error %v, want %v", what, err, driver.ErrDeviceGone)
		}
	}
	_, err = x.VI.RecvWait(ctx)
	wantDevice("wait", err)
	_, err = p.Take(t, x.VI.RecvDone)
	wantDevice("done", err)
	_, err = x.VI.Query(ctx)
	wantDevice("query", err)
	_, err = nics[0].CreateVI(ctx, via.VIAttributes{}, nil, nil)
	wantDevice("create VI", err)
	if err := nics[0].Close(); err != nil {
		t.Errorf("close: %v", err)
	}

	// The other end finds its peer dead, and can be used again.
	p.Until(t, "the peer to be found dead", func() bool {
		s, err := y.VI.Query(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return s.State == via.ErrorState
	})
	if e := <-lost; e.VI != y.VI || !errors.Is(e.Reason(), via.ErrPeerLost) {
		t.Errorf("event %+v: %v", e, e.Reason())
	}
	if err := y.VI.PostSend(y.Prepare(t, y.Send[0], 0, 100)); err != nil {
		t.Fatal(err)
	}
	for what, done := range map[string]func() (*via.Descriptor, error){"receive": y.VI.RecvDone, "send": y.VI.SendDone} {
		_, err := p.Take(t, done)
		if !errors.Is(err, via.ErrPeerLost) || !errors.Is(err, driver.ErrPeerLost) || !errors.Is(err, via.ErrDescriptor) || errors.Is(err, via.ErrDisconnected) {
			t.Errorf("%s: error %v, want %v", what, err, via.ErrPeerLost)
		}
	}
	if err := errors.Join(y.VI.Disconnect(ctx), y.VI.Destroy(ctx)); err != nil {
		t.Error(err)
	}
}

// TestNothingLeaks opens, uses and closes NICs in several states, and counts
// file descriptors and shared mappings.
func TestNothingLeaks(t *testing.T) {
	use := func(closeFirst bool) {
		a, b := onMemory(t, "")
		p := viatest.NewPair(a, b)
		x, y := p.Connect(t, viatest.Setup{})
		for _, e := range []*viatest.End{x, y} {
			if err := errors.Join(e.VI.PostRecv(e.Recv[0]), e.VI.PostSend(e.Send[0])); err != nil {
				t.Fatal(err)
			}
		}
		cq, err := a.CreateCQ(viatest.Context(t), 16)
		if err != nil {
			t.Fatal(err)
		}
		if !closeFirst {
			if err := cq.Destroy(viatest.Context(t)); err != nil {
				t.Error(err)
			}
		}
		if err := errors.Join(a.Close(), b.Close()); err != nil {
			t.Error(err)
		}
	}
	use(true) // what is opened once and for all
	fds, maps := resources(t)
	for i := range 10 {
		use(i%2 == 0)
	}
	if f, m := resources(t); f > fds || m > maps {
		t.Errorf("%d file descriptors and %d shared mappings, %d and %d before", f, m, fds, maps)
	}
}

// resources counts this process's file descriptors and mappings of memfds.
func resources(t *testing.T) (fds, maps int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries), strings.Count(string(text), "memfd:")
}
