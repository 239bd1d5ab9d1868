package driver_test

import (
	"errors"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/driver/drivertest"
	"github.com/trapeze-nic/trapeze/emulator"
)

// newPair opens both ends of an emulated wire.
func newPair(t testing.TB, options ...emulator.Option) (x, y *emulator.Device, a, b *driver.NIC) {
	t.Helper()
	x, y, err := emulator.Pair(options...)
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

// TestEmulator runs the suite on emulated NICs, in each way that they can run.
func TestEmulator(t *testing.T) {
	for _, c := range []struct {
		name    string
		options []emulator.Option
	}{
		{"inline", nil},
		{"inline, trapped doorbells", []emulator.Option{emulator.WithDoorbells(emulator.DoorbellsTrapped)}},
		{"inline, small frames", []emulator.Option{emulator.WithMTU(descriptors.MinMTU)}},
		{"threads", []emulator.Option{emulator.WithThreads()}},
		{"threads, mapped doorbells", []emulator.Option{emulator.WithThreads(), emulator.WithDoorbells(emulator.DoorbellsMapped)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			drivertest.Run(t, func(t *testing.T) (a, b *driver.NIC) {
				_, _, a, b = newPair(t, c.options...)
				return a, b
			})
		})
	}
}

// TestEmulatorRemoved pulls a NIC out while everything waits for it.
func TestEmulatorRemoved(t *testing.T) {
	for name, options := range map[string][]emulator.Option{"inline": nil, "threads": {emulator.WithThreads()}} {
		t.Run(name, func(t *testing.T) {
			drivertest.CheckLeaks(t)
			x, _, a, b := newPair(t, options...)
			ctx := contextFor(t)
			m, err := a.AllocMemory(ctx, 4096, driver.MemoryAttributes{Ptag: mustPtag(t, a)})
			if err != nil {
				t.Fatal(err)
			}
			cq, err := a.CreateCQ(ctx, 8)
			if err != nil {
				t.Fatal(err)
			}
			v, err := a.CreateVI(ctx, driver.VIAttributes{Reliability: descriptors.Unreliable, MaxTransfer: 64, Ptag: m.Attributes().Ptag,
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
				"connection": func() error { _, err := a.ConnectWait(ctx, nil); return err },
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

func mustPtag(t *testing.T, n *driver.NIC) uint32 {
	t.Helper()
	p, err := n.CreatePtag(contextFor(t))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestEmulatorLink: health says whether the link is up.
func TestEmulatorLink(t *testing.T) {
	drivertest.CheckLeaks(t)
	x, _, a, b := newPair(t)
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
	drivertest.CheckLeaks(t)
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
