package driver_test

import (
	"errors"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// newPair opens both ends of an emulated wire.
func newPair(t testing.TB, options emulator.PairOptions) (x, y *emulator.Device, a, b *driver.NIC) {
	t.Helper()
	x, y, err := emulator.Pair(options)
	if err != nil {
		t.Fatal(err)
	}
	a, err = driver.New(contextFor(t), x, driver.Options{Logger: quiet})
	if err != nil {
		t.Fatal(errors.Join(err, y.Close()))
	}
	b, err = driver.New(contextFor(t), y, driver.Options{Logger: quiet})
	if err != nil {
		t.Fatal(errors.Join(err, a.Close()))
	}
	return x, y, a, b
}

// TestEmulatorIdentity: two NICs say who they are, and that they are well.
func TestEmulatorIdentity(t *testing.T) {
	checkLeaks(t)
	_, _, a, b := newPair(t, emulator.PairOptions{})
	for _, n := range []*driver.NIC{a, b} {
		id := n.Identity()
		if id.MaxEndpoints < 2 || id.MaxQueueDepth < 16 || id.MaxTransfer < 32<<10 || id.MTU < datasheet.MinMTU || len(id.Blocks) < 3 {
			t.Errorf("identity %+v", id)
		}
		h, err := n.Health(contextFor(t))
		if err != nil || !h.Ready || h.Fatal || h.Resets == 0 {
			t.Errorf("health %+v, %v", h, err)
		}
		first, err := n.Clock()
		if err != nil {
			t.Error(err)
		}
		if second, err := n.Clock(); err != nil || second < first {
			t.Errorf("clock %v, then %v, %v", first, second, err)
		}
		counters, err := n.Counters()
		if _, ok := counters[datasheet.CounterMessagesSent.String()]; !ok || err != nil {
			t.Errorf("counters %v, %v", counters, err)
		}
	}
	if a.Identity().MAC == b.Identity().MAC {
		t.Error("both have the same address")
	}
	if err := errors.Join(a.Close(), b.Close()); err != nil {
		t.Error(err)
	}
}

// TestDestroyConnected: the driver destroys a VI in any state; its peer is told that
// the connection has ended in order.
func TestDestroyConnected(t *testing.T) {
	checkLeaks(t)
	_, _, a, b := newPair(t, emulator.PairOptions{})
	x, y := connected(t, a, b, layout{})
	recv := y.descriptor(t, 0, 8)
	if err := y.v.PostRecv(recv); err != nil {
		t.Fatal(err)
	}
	if err := x.v.Abandon(contextFor(t)); err != nil {
		t.Fatal(err)
	}
	d, err := y.v.RecvWait(contextFor(t))
	if d != recv || !errors.Is(err, descriptors.ErrDisconnected) || !errors.Is(err, descriptors.ErrDescriptor) {
		t.Errorf("the peer's receive: %v", err)
	}
	if err := x.v.Abandon(contextFor(t)); err != nil {
		t.Errorf("closed twice: %v", err)
	}
	if err := x.v.PostSend(x.descriptor(t, 0, 8)); !errors.Is(err, descriptors.ErrClosed) {
		t.Errorf("posted to a destroyed VI: %v", err)
	}
	if err := errors.Join(a.Close(), b.Close()); err != nil {
		t.Error(err)
	}
}

// TestEmulatorRemoved pulls a NIC out while everything waits for it.
func TestEmulatorRemoved(t *testing.T) {
	for name, options := range map[string]emulator.PairOptions{"inline": {}, "threads": emulator.PairOptions{Threads: true}} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			x, _, a, b := newPair(t, options)
			ctx := contextFor(t)
			m, err := a.Alloc(ctx, 4096, driver.MemoryAttributes{Ptag: mustPtag(t, a)})
			if err != nil {
				t.Fatal(err)
			}
			cq, err := a.CreateCQ(ctx, 8)
			if err != nil {
				t.Fatal(err)
			}
			v, err := a.CreateVI(ctx, driver.VIAttributes{Reliability: datasheet.Unreliable, MaxTransfer: 64, Ptag: m.Attributes().Ptag,
				SendDepth: 4, RecvDepth: 4}, cq, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := v.PostRecv(descriptor(t, m, 0, 64)); err != nil {
				t.Fatal(err)
			}
			waits := map[string]func() error{
				"queue":      func() error { _, err := v.RecvWait(ctx); return err },
				"CQ":         func() error { _, err := cq.Wait(ctx); return err },
				"connection": func() error { _, err := a.ConnectWait(ctx, ""); return err },
			}
			type ended struct {
				name string
				err  error
			}
			ends := make(chan ended)
			for name, wait := range waits {
				go func() { ends <- ended{name, wait()} }()
			}
			time.Sleep(5 * time.Millisecond)
			x.Remove()
			for range waits {
				if e := <-ends; !errors.Is(e.err, driver.ErrDeviceGone) {
					t.Errorf("%s: %v", e.name, e.err)
				}
			}
			if _, err := a.Health(ctx); !errors.Is(err, driver.ErrDeviceGone) {
				t.Errorf("health: %v", err)
			}
			if _, err := a.CreatePtag(ctx); !errors.Is(err, driver.ErrDeviceGone) {
				t.Errorf("command: %v", err)
			}
			if h, err := b.Health(ctx); err != nil || !h.Ready {
				t.Errorf("the other NIC: %+v, %v", h, err)
			}
			if err := errors.Join(a.Close(), b.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}

func mustPtag(t *testing.T, n *driver.NIC) *driver.Ptag {
	t.Helper()
	p, err := n.CreatePtag(contextFor(t))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestEmulatorLink: health says whether the link is up.
func TestEmulatorLink(t *testing.T) {
	checkLeaks(t)
	x, _, a, b := newPair(t, emulator.PairOptions{})
	for _, up := range []bool{true, false, true} {
		x.SetLink(up)
		if h, err := a.Health(contextFor(t)); err != nil || h.LinkUp != up {
			t.Errorf("health %+v, %v, want link %v", h, err, up)
		}
	}
	if err := errors.Join(a.Close(), b.Close()); err != nil {
		t.Error(err)
	}
}

// TestEmulatorReopen: what one NIC leaves behind does not disturb the next.
func TestEmulatorReopen(t *testing.T) {
	checkLeaks(t)
	for range 3 {
		n, err := driver.Open(contextFor(t), "emu:", driver.Options{Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		if n.Address() != "emu:" {
			t.Errorf("address %q", n.Address())
		}
		if err := n.WriteSRAM(100, []byte("SRAM")); err != nil {
			t.Error(err)
		}
		got := make([]byte, 4)
		if err := n.ReadSRAM(100, got); err != nil || string(got) != "SRAM" {
			t.Errorf("%q, %v", got, err)
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}
}
