package igb_test

import (
	"errors"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/fakeigb"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ethernet"
)

const virtual = 0x10ca

func TestVirtual(t *testing.T) {
	d := newFake(t, fakeigb.Options{Device: virtual})
	var sent [][]byte
	d.OnSend = func(s fakeigb.Sent) { sent = append(sent, s.Bytes) }
	p := open(t, d, ethernet.Options{MTU: 1600, Interrupts: true, ReceiveDescriptors: 64, SendDescriptors: 64})
	i := p.Info()
	should.Hold(t, i.MAC == own && i.Model == "82576 virtual function" && i.Tested && i.Vectors == 1, "info %+v", i)
	var want [][]byte
	for i := range 200 {
		data := porttest.FrameTo(own, 60+i)
		want = append(want, data)
		d.Deliver(0, data, 0, 0, 0)
		_, got := porttest.ReceiveAll(t, p.Queue(0))
		porttest.Same(t, [][]byte{data}, got)
		send(t, p, 0, data, nil)
	}
	porttest.Same(t, want, sent)
	d.With(func() { d.Write(fakeigb.VFGPRC, 200) })
	c := p.Stats()
	should.Hold(t, c.Device != nil && c.Device.ReceivedFrames == 200, "counted %+v", c.Device)
	// They wrap.
	d.With(func() { d.Write(fakeigb.VFGPRC, 100) })
	c = p.Stats()
	should.Hold(t, c.Device != nil && c.Device.ReceivedFrames == 1<<32+100, "counted %+v", c.Device)

	before := len(d.Log().Messages)
	other := ethernet.MAC{2, 0, 0, 0, 0, 2}
	err := errors.Join(p.SetMAC(other), p.SetMulticast([]ethernet.MAC{{1, 0, 0x5e, 0, 0, 1}, {1, 0, 0x5e, 0, 0, 2}}), p.SetVLANs([]uint16{5}))
	must.Hold(t, err == nil && p.MAC() == other, "%v, %v", p.MAC(), err)
	should.Same(t, d.Log().Messages[before:], []uint32{2, 3, 2, 3 | 2<<16, 2, 3 | 2<<16, 4 | 1<<16}, "messages")
	// Linux's driver of the physical function does not allow this.
	should.Fail(t, p.SetPromiscuous(true), ethernet.ErrNotSupported, "promiscuous")
	must.OK(t, p.Restart(contextFor(t)))
	send(t, p, 0, porttest.FrameTo(own, 60), nil)
}

// TestVirtualRefuses opens virtual functions whose physical one does not do its part.
func TestVirtualRefuses(t *testing.T) {
	answer := func(change func(message, answer *[16]uint32) bool) func(d *fakeigb.Device) {
		return func(d *fakeigb.Device) {
			d.OnMail = func(message [16]uint32) ([16]uint32, bool) {
				a := message
				a[0] |= 1 << 31
				if message[0]&0xff == 1 {
					a[1], a[2] = 2, 0x100
				}
				return a, change(&message, &a)
			}
		}
	}
	for _, tt := range []struct {
		name   string
		break_ func(d *fakeigb.Device)
		want   error
	}{
		{"no driver on it", answer(func(_, _ *[16]uint32) bool { return false }), ethernet.ErrNotReady},
		{"it dies after the reset", answer(func(m, _ *[16]uint32) bool { return m[0] == 1 }), ethernet.ErrNotReady},
		{"an answer to something else", answer(func(_, a *[16]uint32) bool { a[0] = 0x80000009; return true }), ethernet.ErrProtocol},
		{"an answer to something else later", answer(func(m, a *[16]uint32) bool {
			if m[0] != 1 {
				a[0] ^= 7
			}
			return true
		}), ethernet.ErrProtocol},
		{"no answer but a message to all", answer(func(_, a *[16]uint32) bool { a[0] = 0x20000100; return true }), ethernet.ErrProtocol},
		{"a group address", answer(func(_, a *[16]uint32) bool { a[1] |= 1; return true }), ethernet.ErrProtocol},
		{"it allows no such length", answer(func(m, a *[16]uint32) bool {
			if m[0] == 5 {
				a[0] = 5 | 1<<30
			}
			return true
		}), ethernet.ErrNotSupported},
		{"it is always resetting", func(d *fakeigb.Device) {
			d.OnRead = func(o uint64, v uint32) uint32 {
				if o == fakeigb.Mailbox {
					v |= 1 << 6
				}
				return v
			}
		}, ethernet.ErrNotReady},
		{"it keeps the mailbox", func(d *fakeigb.Device) {
			d.OnRead = func(o uint64, v uint32) uint32 {
				if o == fakeigb.Mailbox {
					v = v&^4 | 8
				}
				return v
			}
		}, ethernet.ErrNotReady},
		{"removed", func(d *fakeigb.Device) { d.Remove() }, ethernet.ErrDeviceGone},
		{"removed later", func(d *fakeigb.Device) {
			n := 0
			d.OnRead = func(_ uint64, v uint32) uint32 {
				if n++; n > 8 {
					return 1<<32 - 1
				}
				return v
			}
		}, ethernet.ErrDeviceGone},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newFake(t, fakeigb.Options{Device: virtual})
			tt.break_(d)
			should.Refuse(ethernet.New(contextFor(t), d, config(t, ethernet.Options{Timeout: soon})))(t, tt.want)
		})
	}
}

// TestVirtualMessageToAll: the physical function's link changes while a virtual one asks, and each answer gives way to
// the message that says so, once. The port opens, and has its address.
func TestVirtualMessageToAll(t *testing.T) {
	d := newFake(t, fakeigb.Options{Device: virtual})
	said := map[uint32]bool{}
	d.OnMail = func(message [16]uint32) ([16]uint32, bool) {
		kind := message[0] & 0xff
		if !said[kind] {
			said[kind] = true
			return [16]uint32{0x20000100}, true
		}
		if kind == 1 {
			copy(message[1:], []uint32{2, 0x100})
		}
		message[0] |= 1 << 31
		return message, true
	}
	p := open(t, d, ethernet.Options{})
	should.Be(t, p.MAC(), ethernet.MAC{2, 0, 0, 0, 0, 1})
	should.Be(t, len(said), 4) // reset, length, address, groups
}

// TestVirtualWithoutAddress makes the physical function give none: the port makes one up.
func TestVirtualWithoutAddress(t *testing.T) {
	d := newFake(t, fakeigb.Options{Device: virtual})
	d.OnMail = func(message [16]uint32) ([16]uint32, bool) {
		if message[0]&0xff == 1 {
			return [16]uint32{1 | 1<<30}, true
		}
		message[0] |= 1 << 31
		return message, true
	}
	p := open(t, d, ethernet.Options{})
	m := p.MAC()
	should.Hold(t, m.IsStation() && m[0]&2 != 0, "address %v", m)
}
