package driver_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
)

// TestChannelRefusals: attributes that make no sense are refused.
func TestChannelRefusals(t *testing.T) {
	checkLeaks(t)
	_, _, a, _ := newPair(t, emulator.PairOptions{})
	m := must.Get(a.Alloc(contextFor(t), 64<<10, driver.MemoryAttributes{}))(t)
	readOnly := must.Get(a.Alloc(contextFor(t), 64<<10, driver.MemoryAttributes{ReadOnly: true}))(t)
	aligned := func(m *driver.Memory) datasheet.DataSegment {
		return datasheet.DataSegment{Address: (m.Address() + 16383) &^ 16383, Handle: m.Handle()}
	}
	for name, spoil := range map[string]func(*driver.ChannelAttributes){
		"page of 2 KiB":        func(a *driver.ChannelAttributes) { a.Page = 11 },
		"page of 32 KiB":       func(a *driver.ChannelAttributes) { a.Page = 15 },
		"no sending page":      func(a *driver.ChannelAttributes) { a.Send = datasheet.DataSegment{} },
		"no receiving page":    func(a *driver.ChannelAttributes) { a.Recv.Handle++ },
		"not aligned":          func(a *driver.ChannelAttributes) { a.Recv.Address += 8 },
		"not all registered":   func(a *driver.ChannelAttributes) { a.Send.Address += 60 << 10 },
		"receiving, read only": func(a *driver.ChannelAttributes) { a.Recv = aligned(readOnly) },
	} {
		attributes := driver.ChannelAttributes{Send: aligned(m), Recv: aligned(m)}
		spoil(&attributes)
		should.Refuse(a.CreateChannel(contextFor(t), attributes))(t, descriptors.ErrInvalidParameter, "%s", name)
	}
	c := must.Get(a.CreateChannel(contextFor(t), driver.ChannelAttributes{Send: aligned(m), Recv: aligned(m)}))(t)
	place := uint16(aligned(m).Address >> 13 & 0x7fff) // of 256 MiB, in double pages of 8 KiB
	sent, err := c.Transmit()
	if w, rerr := c.Received(); err != nil || rerr != nil || sent.Pointer != place || w.Pointer != place {
		t.Errorf("pointers %#x and %#x, want %#x, %v, %v", sent.Pointer, w.Pointer, place, err, rerr)
	}
	should.Refuse(a.CreateChannel(contextFor(t), driver.ChannelAttributes{Ptag: driver.PtagOf(a, 12345), Send: aligned(m), Recv: aligned(m)}))(
		t, descriptors.ErrInvalidPtag)
}

// unmapped is a device of which nothing can be mapped.
type unmapped struct{ *emulator.Device }

func (d unmapped) Region(index int) (vfio.RegionInfo, error) {
	r, err := d.Device.Region(index)
	r.Flags &^= vfio.RegionMmap
	return r, err
}

// TestUnmapped: what stands in device memory needs that mapped.
func TestUnmapped(t *testing.T) {
	checkLeaks(t)
	x, _ := devices(t, emulator.PairOptions{Threads: true})
	n := open(t, unmapped{x}, driver.Options{})
	should.Refuse(n.CreateChannel(contextFor(t), driver.ChannelAttributes{}))(t, descriptors.ErrNotSupported)
	should.Refuse(n.CreateRing(contextFor(t), driver.RingAttributes{SendDepth: 2, RecvDepth: 2}))(t, descriptors.ErrNotSupported)
}

// TestAcceptNothing: an endpoint that is nil accepts nothing, and the request waits on.
func TestAcceptNothing(t *testing.T) {
	checkLeaks(t)
	_, _, a, b := newPair(t, emulator.PairOptions{Threads: true})
	x := newEnd(t, a, layout{}).v
	asked := make(chan error, 1)
	go func() {
		_, err := x.Dial(contextFor(t), driver.Address{MAC: b.Identity().MAC, Discriminator: "nothing"}, "")
		asked <- err
	}()
	c := must.Get(b.ConnectWait(contextFor(t), "nothing"))(t)
	for _, none := range []driver.Endpoint{nil, (*driver.VI)(nil), (*driver.Ring)(nil), (*driver.Channel)(nil), x} {
		should.Refuse(c.Accept(contextFor(t), none))(t, descriptors.ErrInvalidParameter, "%T", none)
	}
	should.OK(t, c.Reject(contextFor(t)))
	should.Fail(t, <-asked, descriptors.ErrReject)
}
