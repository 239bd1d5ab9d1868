package drivertest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
)

// testSendErrors posts descriptors that are wrong in ways that only the device
// can see.
func testSendErrors(t *testing.T, a, b *driver.NIC) {
	foreign, err := a.CreatePtag(Context(t))
	if err != nil {
		t.Fatal(err)
	}
	other, err := a.AllocMemory(Context(t), 4096, driver.MemoryAttributes{Ptag: foreign})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		make func(*testing.T, *end) *descriptors.Descriptor
		want descriptors.Status
	}{
		{"handle that is not there", segment(func(e *end) (uint64, uint32, uint32) { return e.m.Address(), ^e.m.Handle(), 8 }), descriptors.StatusProtectionError},
		{"handle 0", segment(func(e *end) (uint64, uint32, uint32) { return e.m.Address(), 0, 8 }), descriptors.StatusProtectionError},
		{"other ptag", segment(func(*end) (uint64, uint32, uint32) { return other.Address(), other.Handle(), 8 }), descriptors.StatusProtectionError},
		{"before the region", segment(func(e *end) (uint64, uint32, uint32) { return e.m.Address() - 1, e.m.Handle(), 8 }), descriptors.StatusProtectionError},
		{"across the end of the region", segment(func(e *end) (uint64, uint32, uint32) {
			return e.m.Address() + uint64(e.m.Size()) - 4, e.m.Handle(), 8
		}), descriptors.StatusProtectionError},
		{"address that wraps", segment(func(e *end) (uint64, uint32, uint32) { return ^uint64(3), e.m.Handle(), 8 }), descriptors.StatusProtectionError},
		{"longer than the largest transfer", segment(func(e *end) (uint64, uint32, uint32) {
			return e.m.Address(), e.m.Handle(), e.v.Attributes().MaxTransfer + 1
		}), descriptors.StatusLengthError},
		{"length that is not the sum", control(func(c *descriptors.ControlSegment) { c.Length = 9 }), descriptors.StatusLengthError},
		{"reserved control bits", control(func(c *descriptors.ControlSegment) { c.Control |= 0x8000 }), descriptors.StatusFormatError},
		{"too many segments", control(func(c *descriptors.ControlSegment) { c.SegCount = 0xffff }), descriptors.StatusFormatError},
	} {
		for _, level := range []descriptors.Reliability{descriptors.Unreliable, descriptors.ReliableDelivery} {
			t.Run(c.name+", "+level.String(), func(t *testing.T) {
				x, y := connected(t, a, b, layout{reliability: level, maxTransfer: 4096, slots: 4})
				// A reliable sender looks at nothing that the receiver has no room for.
				recv := y.descriptor(t, 2, 4096)
				if level != descriptors.Unreliable {
					if err := y.v.PostRecv(recv); err != nil {
						t.Fatal(err)
					}
				}
				d := c.make(t, x)
				if err := x.v.PostSend(d); err != nil {
					t.Fatal(err)
				}
				got, err := x.v.SendWait(Context(t))
				if got != d {
					t.Errorf("descriptor %v", got)
				}
				failed(t, c.name, err, c.want)
				if level != descriptors.Unreliable {
					if !errors.Is(err, driver.ErrConnectionBroken) {
						t.Errorf("the send that broke the connection: %v", err)
					}
					flushed(t, y, []*descriptors.Descriptor{recv}, driver.ErrConnectionBroken)
					x.reaches(t, descriptors.StateError)
					y.reaches(t, descriptors.StateError)
					if err := errors.Join(x.v.Disconnect(Context(t)), y.v.Disconnect(Context(t))); err != nil {
						t.Fatal(err)
					}
					connect(t, x, y)
				}
				transfer(t, x, y, []byte("still works"))
				if err := errors.Join(x.v.Destroy(Context(t)), y.v.Destroy(Context(t))); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// segment makes a descriptor with the one data segment that f returns.
func segment(f func(*end) (address uint64, handle, length uint32)) func(*testing.T, *end) *descriptors.Descriptor {
	return func(t *testing.T, e *end) *descriptors.Descriptor {
		t.Helper()
		d := e.descriptor(t, 3)
		if err := d.AddData(f(e)); err != nil {
			t.Fatal(err)
		}
		return d
	}
}

// control makes a sound descriptor of 8 bytes and lets f spoil it.
func control(f func(*descriptors.ControlSegment)) func(*testing.T, *end) *descriptors.Descriptor {
	return func(t *testing.T, e *end) *descriptors.Descriptor {
		t.Helper()
		d := e.descriptor(t, 3, 8)
		f(d.Control())
		return d
	}
}

func testReceiveTooSmall(t *testing.T, a, b *driver.NIC) {
	for _, level := range []descriptors.Reliability{descriptors.Unreliable, descriptors.ReliableDelivery} {
		t.Run(level.String(), func(t *testing.T) {
			x, y := connected(t, a, b, layout{reliability: level})
			send, recv := x.descriptor(t, 0, 100), y.descriptor(t, 0, 50)
			if err := errors.Join(y.v.PostRecv(recv), x.v.PostSend(send)); err != nil {
				t.Fatal(err)
			}
			d, err := y.v.RecvWait(Context(t))
			if d != recv {
				t.Errorf("descriptor %v", d)
			}
			failed(t, "a receive of 50 bytes", err, descriptors.StatusLengthError)
			_, err = x.v.SendWait(Context(t))
			if level == descriptors.Unreliable {
				if err != nil {
					t.Errorf("the sender learned of it: %v", err)
				}
				transfer(t, x, y, []byte("goes on"))
				return
			}
			failed(t, "the send", err, descriptors.StatusRemoteDescriptor)
			x.reaches(t, descriptors.StateError)
			y.reaches(t, descriptors.StateError)
		})
	}
}

// testEvents: a message for which no receive is posted is dropped, and the
// receiver is told.
func testEvents(t *testing.T, a, b *driver.NIC) {
	x, y := connected(t, a, b, layout{reliability: descriptors.Unreliable})
	events := make(chan descriptors.Event, 16)
	b.OnEvent(func(e descriptors.Event) { events <- e })
	send := x.descriptor(t, 0, 8)
	if err := x.v.PostSend(send); err != nil {
		t.Fatal(err)
	}
	takeSend(t, x, send)
	for until := time.Now().Add(Patience); ; {
		a.Poll()
		b.Poll()
		select {
		case e := <-events:
			if e.Code != descriptors.EventReceiveQueueEmpty || e.Endpoint != y.v.Number() {
				t.Errorf("event %+v", e)
			}
			counters, err := b.Counters()
			if err != nil || counters[descriptors.CounterReceiveQueueEmpty.String()] != 1 {
				t.Errorf("counters %v, %v", counters, err)
			}
			return
		case <-time.After(time.Millisecond):
		}
		if time.Now().After(until) {
			t.Fatal("no event")
		}
	}
}

func testWaitContext(t *testing.T, a, b *driver.NIC) {
	x, _ := connected(t, a, b, layout{recvCQ: 16})
	y, _ := connected(t, a, b, layout{})
	if err := errors.Join(x.v.PostRecv(x.descriptor(t, 0, 8)), y.v.PostRecv(y.descriptor(t, 0, 8))); err != nil {
		t.Fatal(err)
	}
	for name, wait := range map[string]func(context.Context) error{
		"queue": func(ctx context.Context) error { _, err := y.v.RecvWait(ctx); return err },
		"CQ":    func(ctx context.Context) error { _, err := x.recvCQ.Wait(ctx); return err },
	} {
		short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if err := wait(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
		canceled, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Millisecond, cancel)
		if err := wait(canceled); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// testInUse destroys things that others need.
func testInUse(t *testing.T, a, b *driver.NIC) {
	ctx := Context(t)
	x := newEnd(t, a, layout{sendCQ: 16})
	if err := x.sendCQ.Destroy(ctx); !errors.Is(err, driver.ErrInUse) {
		t.Errorf("CQ with a VI: %v", err)
	}
	if err := a.DestroyPtag(ctx, x.ptag); !errors.Is(err, driver.ErrResource) {
		t.Errorf("ptag with a VI and memory: %v", err)
	}
	if err := x.v.PostRecv(x.descriptor(t, 0, 8)); err != nil {
		t.Fatal(err)
	}
	if err := x.m.Deregister(ctx); !errors.Is(err, driver.ErrInUse) {
		t.Errorf("memory with a posted descriptor: %v", err)
	}
	if _, err := a.RegisterMemory(ctx, make([]byte, 4096), driver.MemoryAttributes{Ptag: x.ptag}); !errors.Is(err, driver.ErrNotDMAMemory) {
		t.Errorf("memory of the Go heap: %v", err)
	}
	for _, f := range []func() error{
		func() error { return x.v.Destroy(ctx) },
		func() error { return x.sendCQ.Destroy(ctx) },
		func() error { return x.m.Deregister(ctx) },
		func() error { return a.DestroyPtag(ctx, x.ptag) },
	} {
		if err := f(); err != nil {
			t.Error(err)
		}
	}
	if err := a.DestroyPtag(ctx, x.ptag); !errors.Is(err, driver.ErrInvalidPtag) && !errors.Is(err, driver.ErrInvalidParameter) {
		t.Errorf("destroyed twice: %v", err)
	}
	// Nothing of that has done the NIC any harm.
	p, q := connected(t, a, b, layout{})
	transfer(t, p, q, []byte("fine"))
}
