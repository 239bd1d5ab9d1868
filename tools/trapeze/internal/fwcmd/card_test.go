package fwcmd_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/vfio"
)

// card is an emulated NIC that passes for one in a slot of this machine: it stays
// when a process leaves it, and its back end is the kernel's.
type card struct {
	*emulator.Device
	opened, written atomic.Int32
	backend         string
}

func (c *card) Info() vfio.Info {
	info := c.Device.Info()
	info.Backend = c.backend
	return info
}

func (c *card) WriteRegion(index int, offset uint64, p []byte) error {
	c.written.Add(1)
	return c.Device.WriteRegion(index, offset, p)
}

// Close is what the kernel does when a process leaves a device.
func (c *card) Close() error { return c.Device.Reset(context.Background()) }

// slots are the cards by the path of their address.
var slots = struct {
	cards [64]atomic.Pointer[card]
	next  atomic.Int32
}{}

func init() {
	open := func(_ context.Context, a vfio.Address) (vfio.Device, error) {
		var n int
		if _, err := fmt.Sscan(a.Path, &n); err != nil {
			return nil, err
		}
		c := slots.cards[n].Load()
		c.opened.Add(1)
		return c, nil
	}
	vfio.Register("card", open)
	// An address that promises less than what is behind it.
	vfio.Register("vfio-user", open)
}

// plug puts a card into this machine and returns its address.
func plug(t testing.TB) (address string, c *card) {
	t.Helper()
	x, err := vfio.Open(t.Context(), "emu:")
	if err != nil {
		t.Fatal(err)
	}
	c = &card{Device: x.(*emulator.Device), backend: "group"}
	n := slots.next.Add(1)
	slots.cards[n].Store(c)
	t.Cleanup(func() {
		if err := c.Device.Close(); err != nil {
			t.Error(err)
		}
	})
	return fmt.Sprintf("card:%d", n), c
}
