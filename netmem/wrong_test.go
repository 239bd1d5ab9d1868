package netmem_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/netmem"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/via"
)

// TestWithoutNIC: each function that takes a NIC refuses none.
func TestWithoutNIC(t *testing.T) {
	ctx := t.Context()
	for name, call := range map[string]func() error{
		"via.Dial":           func() error { _, err := via.Dial(ctx, nil, "alpha:x", via.ConnOptions{}); return err },
		"via.DialStream":     func() error { _, err := via.DialStream(ctx, nil, "alpha:x"); return err },
		"via.Listen":         func() error { _, err := via.Listen(nil, "x", via.ListenOptions{}); return err },
		"via.New":            func() error { _, err := via.New(ctx, nil, via.Options{}); return err },
		"via.OpenDevice":     func() error { _, err := via.OpenDevice(ctx, nil, via.Options{}); return err },
		"channel.Dial":       func() error { _, err := channel.Dial(ctx, nil, "alpha:x", channel.Options{}); return err },
		"channel.Listen":     func() error { _, err := channel.Listen(nil, "x", channel.Options{}); return err },
		"channel.NewPages":   func() error { _, err := channel.NewPages(ctx, nil, 4096, via.MemoryAttributes{}); return err },
		"channel.OpenKernel": func() error { _, err := channel.OpenKernel(ctx, nil, 0); return err },
		"ring.Dial":          func() error { _, err := ring.Dial(ctx, nil, "alpha:x", ring.Options{}); return err },
		"ring.Listen":        func() error { _, err := ring.Listen(nil, "x", ring.Options{}); return err },
		"netmem.Open":        func() error { _, err := netmem.Open(ctx, nil, []string{"alpha:x"}, netmem.Options{}); return err },
		"netmem.OpenSource":  func() error { _, err := netmem.OpenSource(ctx, nil, []string{"alpha:x"}, netmem.Options{}); return err },
		"netmem.NewServer":   func() error { _, err := netmem.NewServer(ctx, nil, netmem.ServerOptions{}); return err },
	} {
		if err := call(); !errors.Is(err, via.ErrInvalidParameter) || !strings.Contains(err.Error(), "nil") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDeviceTwice: a device has one NIC at a time. The second open takes nothing from the first.
func TestDeviceTwice(t *testing.T) {
	device, other := must.Two(emulator.Pair(emulator.PairOptions{}))(t)
	defer other.Close()
	n := must.Get(via.OpenDevice(t.Context(), device, via.Options{}))(t)
	for _, ctx := range []context.Context{t.Context(), nil} {
		should.Refuse(via.OpenDevice(ctx, device, via.Options{}))(t, via.ErrInvalidState, "the second time")
	}
	if _, err := n.Alloc(t.Context(), 4096, via.MemoryAttributes{}); err != nil {
		t.Errorf("the first NIC: %v", err)
	}
	// A device that cannot be compared is refused as any other.
	var none context.Context
	should.Refuse(via.OpenDevice(none, struct {
		vfio.Device
		_ []int
	}{Device: other}, via.Options{}))(t, via.ErrInvalidParameter, "a device that cannot be compared")
	must.OK(t, n.Close())
	if _, err := via.OpenDevice(t.Context(), device, via.Options{}); errors.Is(err, via.ErrInvalidState) || err == nil {
		t.Errorf("after the end of the first: %v", err)
	}
}

// TestPagesOfNoSize: a listener refuses pages that no channel has, before a client comes.
func TestPagesOfNoSize(t *testing.T) {
	a, _ := conform.OnMemory(t, "", via.Options{})
	for _, size := range []int{5, -1, 1, 4095, 6144, 32768} {
		if _, err := channel.Listen(a, "pages", channel.Options{PageSize: size}); !errors.Is(err, via.ErrInvalidParameter) || !strings.Contains(err.Error(), "PageSize") {
			t.Errorf("PageSize %d: %v", size, err)
		}
	}
}
