package driver_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// Where the fake device has the pieces of its ring.
const (
	fakeSend  = 0
	fakeRecv  = 4 * datasheet.RingSlotSize
	fakeTable = 0x600
)

// withRings has the fake device make rings of 2 entries in its memory, which is not mapped.
func withRings(d *fakeDevice) {
	d.set(datasheet.IdentityOffset+datasheet.RegFeaturesLow, uint32(datasheet.FeatureRing))
	d.tamper = func(e *datasheet.AdminEntry) {
		if c := datasheet.Reply[datasheet.EndpointCreated](e); e.Kind == datasheet.EntryReply && c.Endpoint != 0 && d.admin.endpoints[c.Endpoint].Kind == datasheet.KindRing {
			c.Handle, c.Send, c.Recv, c.Table = 77, fakeSend, fakeRecv, fakeTable
		}
	}
}

func ringAttributes() driver.RingAttributes {
	return driver.RingAttributes{Reliability: datasheet.Unreliable, Ptag: 1, MaxPayload: 4096, SendDepth: 2, RecvDepth: 2}
}

func newFakeRing(t *testing.T) (*rig, *driver.Ring) {
	t.Helper()
	r := newRig(t, withRings, 0, 0)
	x, err := r.n.CreateRing(contextFor(t), ringAttributes())
	if err != nil {
		t.Fatal(err)
	}
	return r, x
}

// slot is a slot in the fake device's memory.
func (r *rig) slot(at int) *datasheet.RingSlot {
	return &datasheet.RingSlotsAt(r.d.sram.Bytes()[at:][:datasheet.RingSlotSize])[0]
}

// TestRingPieces: a device that says that rings are where they cannot be has broken the
// protocol.
func TestRingPieces(t *testing.T) {
	for name, change := range map[string]func(*datasheet.EndpointCreated){
		"send ring outside":        func(c *datasheet.EndpointCreated) { c.Send = fakeSRAM - datasheet.RingSlotSize },
		"send ring far outside":    func(c *datasheet.EndpointCreated) { c.Send = 0xffffffc0 },
		"receive ring outside":     func(c *datasheet.EndpointCreated) { c.Recv = fakeSRAM },
		"table outside":            func(c *datasheet.EndpointCreated) { c.Table = fakeSRAM - 64 },
		"misaligned":               func(c *datasheet.EndpointCreated) { c.Send = 8 },
		"rings overlap":            func(c *datasheet.EndpointCreated) { c.Recv = c.Send + 64 },
		"table overlaps a ring":    func(c *datasheet.EndpointCreated) { c.Table = c.Recv },
		"no such endpoint":         func(c *datasheet.EndpointCreated) { c.Endpoint = fakeEndpoints },
		"endpoint of the owner":    func(c *datasheet.EndpointCreated) { c.Endpoint = 0 },
		"endpoint of another ring": func(c *datasheet.EndpointCreated) { c.Endpoint = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := newFakeRing(t)
			r.d.with(func() {
				sound := r.d.tamper
				r.d.tamper = func(e *datasheet.AdminEntry) {
					sound(e)
					change(datasheet.Reply[datasheet.EndpointCreated](e))
				}
			})
			if _, err := r.n.CreateRing(contextFor(t), ringAttributes()); !errors.Is(err, driver.ErrProtocol) {
				t.Error(err)
			}
		})
	}
}

// TestRingArguments asks for what the device does not have.
func TestRingArguments(t *testing.T) {
	r, _ := newFakeRing(t)
	for name, c := range map[string]struct {
		change func(*driver.RingAttributes)
		want   error
	}{
		"no entries":    {func(a *driver.RingAttributes) { a.SendDepth = 0 }, descriptors.ErrInvalidParameter},
		"many entries":  {func(a *driver.RingAttributes) { a.RecvDepth = 65 }, descriptors.ErrInvalidParameter},
		"large payload": {func(a *driver.RingAttributes) { a.MaxPayload = 1<<20 - 127 }, descriptors.ErrInvalidMTU},
	} {
		a := ringAttributes()
		c.change(&a)
		if _, err := r.n.CreateRing(contextFor(t), a); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	older := newRig(t, nil, 0, 0)
	if _, err := older.n.CreateRing(contextFor(t), ringAttributes()); !errors.Is(err, descriptors.ErrNotSupported) {
		t.Error(err)
	}
}

// TestRingSlots: what the driver puts is where the data sheet says, and what it takes back
// is what stands there, in memory that is not mapped.
func TestRingSlots(t *testing.T) {
	r, x := newFakeRing(t)
	if x.Mapped() || x.Send.Message(0) != nil {
		t.Error("memory that is not mapped")
	}
	s := driver.RingEntry{Payload: datasheet.DataSegment{Address: 0x1000, Handle: 5, Length: 100}, Length: 60, Tag: 9, Tagged: true}
	if err := x.Send.Put(0, []byte("message"), s); err != nil {
		t.Fatal(err)
	}
	if err := x.Send.Post(1); err != nil {
		t.Fatal(err)
	}
	r.d.with(func() {
		slot := r.slot(fakeSend)
		if string(slot.Message[:8]) != "message\x00" || slot.Segments != 1 || slot.Control != datasheet.ControlImmediate ||
			slot.Tag != 9 || slot.Length != 60 || slot.Status != 0 || slot.Payload != s.Payload {
			t.Errorf("%+v", slot)
		}
		if n := r.d.doorbell(datasheet.EndpointPage(x.Number()) + datasheet.DoorbellRing + datasheet.DoorbellSend); n != 1 {
			t.Errorf("doorbell %d", n)
		}
	})
	if _, err := x.Send.Done(); err != descriptors.ErrNotDone {
		t.Error(err)
	}
	r.d.with(func() { r.slot(fakeSend).Status = uint32(datasheet.StatusDone) })
	if c, err := x.Send.Done(); err != nil || c.Index != 0 {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := x.Send.Done(); err != descriptors.ErrQueueEmpty {
		t.Error(err)
	}
	for what, err := range map[string]error{
		"ahead":             x.Send.Put(3, nil, driver.RingEntry{}),
		"behind":            x.Send.Put(0, nil, driver.RingEntry{}),
		"long message":      x.Send.Put(1, make([]byte, 129), driver.RingEntry{}),
		"more than is":      x.Send.Put(1, nil, driver.RingEntry{Length: 1}),
		"large payload":     x.Send.Put(1, nil, driver.RingEntry{Payload: datasheet.DataSegment{Handle: 1, Length: 4097}}),
		"none":              x.Send.Post(0),
		"too many":          x.Send.Post(3),
		"too many by a lot": x.Send.Post(1 << 31),
	} {
		if !errors.Is(err, descriptors.ErrInvalidParameter) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := x.SetPlace(0x107, datasheet.DataSegment{Address: 0x2000, Handle: 6, Length: 7}); err != nil {
		t.Fatal(err)
	}
	r.d.with(func() {
		e := datasheet.RingPlacesAt(r.d.sram.Bytes()[fakeTable+7*datasheet.RingPlaceSize:][:datasheet.RingPlaceSize])[0]
		if e.Address != 0x2000 || e.Handle != 6 || e.Length != 7 || e.Tag != 0x107 {
			t.Errorf("%+v", e)
		}
	})
	if err := x.ClearPlace(0x107); err != nil {
		t.Fatal(err)
	}
}

// TestRingCompletions: what the device writes into a slot that makes no sense is an error,
// and the ring goes on.
func TestRingCompletions(t *testing.T) {
	const received = datasheet.StatusDone | datasheet.StatusOpReceive
	for name, c := range map[string]struct {
		slot datasheet.RingSlot
		want error
	}{
		"sound":               {datasheet.RingSlot{Status: uint32(received | datasheet.StatusImmediate), Length: 100, Sent: 100, Tag: 3}, nil},
		"in the table":        {datasheet.RingSlot{Status: uint32(received), Length: 4096, Sent: 4096, Place: 256}, nil},
		"discarded":           {datasheet.RingSlot{Status: uint32(received), Sent: 4096}, nil},
		"reserved bits":       {datasheet.RingSlot{Status: uint32(received | 1<<31)}, driver.ErrProtocol},
		"more than framed":    {datasheet.RingSlot{Status: uint32(received), Length: 101, Sent: 101}, driver.ErrProtocol},
		"more than a payload": {datasheet.RingSlot{Status: uint32(received), Length: 4097, Sent: 4097, Place: 1}, driver.ErrProtocol},
		"sent more":           {datasheet.RingSlot{Status: uint32(received), Sent: 4097}, driver.ErrProtocol},
		"no such place":       {datasheet.RingSlot{Status: uint32(received), Place: 257}, driver.ErrProtocol},
		"far place":           {datasheet.RingSlot{Status: uint32(received), Place: 0xffffffff}, driver.ErrProtocol},
		"bad memory":          {datasheet.RingSlot{Status: uint32(received | datasheet.StatusProtectionError)}, descriptors.ErrDescriptor},
	} {
		t.Run(name, func(t *testing.T) {
			r, x := newFakeRing(t)
			for i := range uint32(2) {
				if err := x.Recv.Put(i, nil, driver.RingEntry{Payload: datasheet.DataSegment{Address: 64, Handle: 1, Length: 100}}); err != nil {
					t.Fatal(err)
				}
			}
			if err := x.Recv.Post(2); err != nil {
				t.Fatal(err)
			}
			r.d.with(func() {
				*r.slot(fakeRecv) = c.slot
				r.slot(fakeRecv + datasheet.RingSlotSize).Status = uint32(received)
			})
			got, err := x.Recv.Done()
			if !errors.Is(err, c.want) || got.Length != c.slot.Length || got.Sent != c.slot.Sent || got.Place != int(c.slot.Place)-1 || got.Tagged != (c.slot.Tag != 0) {
				t.Errorf("%+v, %v", got, err)
			}
			if next, err := x.Recv.Done(); err != nil || next.Index != 1 {
				t.Errorf("the next one: %+v, %v", next, err)
			}
		})
	}
}

// TestRingDeviceGone: waits and polls end when the device is pulled out.
func TestRingDeviceGone(t *testing.T) {
	r, x := newFakeRing(t)
	if err := x.Recv.Put(0, nil, driver.RingEntry{}); err != nil {
		t.Fatal(err)
	}
	if err := x.Recv.Post(1); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := x.Recv.Wait(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	early := driver.NewSignal()
	early.Set()
	if err := x.Wait(contextFor(t), early); err != nil {
		t.Error(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- x.Recv.Wait(contextFor(t), nil) }()
	r.d.remove()
	// Memory of a device that is gone reads as all ones, as something to take does.
	if err := <-ended; err != nil && !errors.Is(err, descriptors.ErrDevice) {
		t.Error(err)
	}
	if _, err := x.Recv.Done(); !errors.Is(err, driver.ErrDeviceGone) {
		t.Error(err)
	}
}
