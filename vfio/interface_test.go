package vfio_test

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/vfio"
)

// board is a function with configuration space and MSI-X only.
type board struct {
	vfio.Device // nil: what is not here is not called
	command     [2]byte
	vectors     []int
	resets      int
	closed      bool
	alerts      chan error
}

var lastBoard *board

func init() {
	vfio.Register("test-board", func(_ context.Context, a vfio.Address) (vfio.Device, error) {
		if a.Path == "none" {
			return nil, vfio.ErrDeviceGone
		}
		lastBoard = &board{alerts: make(chan error, 1)}
		return lastBoard, nil
	})
}

func (b *board) Info() vfio.Info { return vfio.Info{Address: "test-board:", Regions: 9, IRQs: 5} }

func (b *board) ReadRegion(_ int, _ uint64, p []byte) error { copy(p, b.command[:]); return nil }

func (b *board) WriteRegion(_ int, _ uint64, p []byte) error { copy(b.command[:], p); return nil }

func (b *board) IRQ(index int) (vfio.IRQInfo, error) {
	return vfio.IRQInfo{Index: index, Count: 8, Flags: vfio.IRQEventfd}, nil
}

func (b *board) SetIRQs(_, _ int, fds []int) error { b.vectors = slices.Clone(fds); return nil }
func (b *board) DisableIRQs(int) error             { b.vectors = nil; return nil }
func (b *board) Reset(context.Context) error       { b.resets++; return nil }
func (b *board) Close() error                      { b.closed = true; return nil }
func (b *board) Alerts() <-chan error              { return b.alerts }

func (b *board) IOVARanges() ([]vfio.IOVARange, error) {
	return []vfio.IOVARange{{First: 0x1000, Last: 1<<40 - 1}}, nil
}

func openBoard(t *testing.T, address string) vfio.Device {
	t.Helper()
	d := must.Get(vfio.Open(t.Context(), address))(t)
	t.Cleanup(func() { should.OK(t, d.Close()) })
	return d
}

// TestInterfacesOfFunction: interfaces of a function share it without harm to each other.
func TestInterfacesOfFunction(t *testing.T) {
	a, b := openBoard(t, "test-board:x?interface=0&k=v"), openBoard(t, "test-board:x?k=v&interface=3")
	dev := lastBoard
	if vfio.Interface(a) != 0 || vfio.Interface(b) != 3 || vfio.Interface(dev) != 0 || b.Info().Address != "test-board:x?k=v&interface=3" {
		t.Errorf("interfaces %d and %d, %+v", vfio.Interface(a), vfio.Interface(b), b.Info())
	}
	// Bus addresses do not overlap.
	ra, _ := a.IOVARanges()
	rb, _ := b.IOVARanges()
	if len(ra) != 2 || len(rb) != 2 || ra[0].First != 0x1000 || ra[0].Last >= rb[0].First || rb[0].Last > ra[1].First || ra[1].Last >= rb[1].First || rb[1].Last > 1<<40-1 {
		t.Errorf("%+v and %+v", ra, rb)
	}
	// Vectors are told all at once, each interface's from its own first.
	for _, step := range []struct {
		f    func() error
		want []int
	}{
		{func() error { return a.SetIRQs(vfio.IRQMSIX, 0, []int{10, 11}) }, []int{10, 11, -1, -1, -1, -1, -1, -1}},
		{func() error { return b.SetIRQs(vfio.IRQMSIX, 1, []int{21}) }, []int{10, 11, -1, 21, -1, -1, -1, -1}},
		{func() error { return a.SetIRQs(vfio.IRQMSIX, 1, []int{-1}) }, []int{10, -1, -1, 21, -1, -1, -1, -1}},
		{func() error { return a.DisableIRQs(vfio.IRQMSIX) }, []int{-1, -1, -1, 21, -1, -1, -1, -1}},
		{func() error { return b.DisableIRQs(vfio.IRQINTx) }, []int{-1, -1, -1, 21, -1, -1, -1, -1}},
	} {
		err := step.f()
		should.Hold(t, err == nil && slices.Equal(dev.vectors, step.want), "vectors %v, %v, want %v", dev.vectors, err, step.want)
	}
	if vfio.FirstVector(b) != 2 || vfio.FirstVector(dev) != 0 {
		t.Errorf("first vector %d", vfio.FirstVector(b))
	}
	should.Be(t, must.Get(a.IRQ(vfio.IRQMSIX))(t).Count, 4)
	for _, err := range []error{a.SetIRQs(vfio.IRQMSIX, 0, make([]int, 5)), a.SetIRQs(vfio.IRQMSIX, -1, nil), a.SetIRQs(vfio.IRQINTx, 0, []int{1})} {
		should.Fail(t, err, vfio.ErrNoSuchIRQ)
	}
	// No interface takes the bus from another, or resets it.
	command := func(d vfio.Device, v uint16) error {
		return d.WriteRegion(vfio.RegionConfig, vfio.ConfigCommand, binary.LittleEndian.AppendUint16(nil, v))
	}
	should.OK(t, command(a, 6))
	for _, err := range []error{command(b, 2), b.Reset(t.Context())} {
		should.Fail(t, err, vfio.ErrInUse)
	}
	should.Refuse(vfio.Open(t.Context(), "test-board:x?interface=3&k=v"))(t, vfio.ErrInUse, "opened twice")
	// What goes wrong with the function is told to all.
	dev.alerts <- vfio.ErrDeviceGone
	for _, d := range []vfio.Device{a, b} {
		select {
		case err := <-d.(vfio.Alerter).Alerts():
			should.Fail(t, err, vfio.ErrDeviceGone)
		case <-time.After(20 * time.Second):
			t.Error("no alert")
		}
	}
	err := a.Close()
	should.Hold(t, err == nil && !dev.closed, "closed: %v, %v", dev.closed, err)
	should.Fail(t, command(a, 2), vfio.ErrClosed, "after Close")
	// The last has the function for itself.
	for _, err := range []error{command(b, 2), b.Reset(t.Context()), b.Close()} {
		should.OK(t, err)
	}
	should.Hold(t, dev.closed && dev.resets == 1, "closed: %v, %d resets", dev.closed, dev.resets)
}

func TestBadInterface(t *testing.T) {
	for address, want := range map[string]error{
		"test-board:y?interface=": vfio.ErrBadAddress, "test-board:y?interface=8": vfio.ErrBadAddress, "test-board:y?interface=-1": vfio.ErrBadAddress,
		"test-board:none?interface=1": vfio.ErrDeviceGone, "test-nothing:?interface=1": vfio.ErrUnknownScheme,
	} {
		d, err := vfio.Open(t.Context(), address)
		should.Hold(t, d == nil && errors.Is(err, want), "%s: %v, %v", address, d, err)
	}
}
