package fwcmd_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
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

// cards are *card by the path of their address, a number.
var (
	cards sync.Map
	next  atomic.Int32
)

func init() {
	open := func(_ context.Context, a vfio.Address) (vfio.Device, error) {
		c, ok := cards.Load(a.Path)
		if !ok {
			return nil, fmt.Errorf("no card %s", a.Path)
		}
		c.(*card).opened.Add(1)
		return c.(*card), nil
	}
	vfio.Register("card", open)
	// An address that promises less than what is behind it.
	vfio.Register("emulator", open)
}

// plug puts a card into this machine and returns its address.
func plug(t testing.TB) (address string, c *card) {
	t.Helper()
	x := must.Get(vfio.Open(t.Context(), "emu:"))(t)
	c = &card{Device: x.(*emulator.Device), backend: "group"}
	n := fmt.Sprint(next.Add(1))
	cards.Store(n, c)
	t.Cleanup(func() { should.OK(t, c.Device.Close()) })
	return "card:" + n, c
}
