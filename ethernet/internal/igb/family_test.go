package igb_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/fakeigb"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ethernet"
)

// TestFamily opens each model on a fake device that differs only in its number: what the
// table says of it reaches the registers.
func TestFamily(t *testing.T) {
	for _, tt := range []struct {
		device uint16
		queues int
		check  func(d *fakeigb.Device) bool
	}{
		{0x10c9, 16, func(d *fakeigb.Device) bool { return d.Get(fakeigb.IVAR+28) == 0x8f8f8787 && d.Get(0xc038) == 0 }},
		{0x150e, 8, func(d *fakeigb.Device) bool { return d.Get(fakeigb.IVAR) == 0x81818080 && d.Get(0xc038) == 0 }},
		{0x1521, 8, func(d *fakeigb.Device) bool { return d.Get(fakeigb.IVAR+12) == 0x87878686 && d.Get(0xc038)>>31 == 1 }},
		{0x1533, 4, func(d *fakeigb.Device) bool { return d.Get(0xc038+0xc0)>>31 == 1 }},
		{0x1539, 2, func(d *fakeigb.Device) bool { return d.Get(fakeigb.IVAR) == 0x81818080 }},
	} {
		d := newFake(t, fakeigb.Options{Device: tt.device})
		p := open(t, d, ethernet.Options{Queues: tt.queues, ReceiveDescriptors: 64, Interrupts: true})
		i := p.Info()
		should.Hold(t, i.Tested == (tt.device == 0x10c9), "%s: tested is %t", i.Model, i.Tested)
		d.With(func() {
			if !tt.check(d) {
				t.Errorf("%04x: IVAR %#x %#x, DVMOLR %#x", tt.device, d.Get(fakeigb.IVAR), d.Get(fakeigb.IVAR+4), d.Get(0xc038))
			}
		})
		for q := range tt.queues {
			d.Deliver(q, porttest.FrameTo(own, 60+q), 0, 0, 0)
			_, data := porttest.ReceiveAll(t, p.Queue(q))
			should.Hold(t, len(data) == 1 && len(data[0]) == 60+q, "%04x: queue %d received %d frames", tt.device, q, len(data))
			send(t, p, q, porttest.FrameTo(own, 60), nil)
		}
	}
}

// TestNVM takes the address from the NVM if the device has not loaded it; an I210 has its
// commands elsewhere.
func TestNVM(t *testing.T) {
	for _, device := range []uint16{0x10c9, 0x1533} {
		d := newFake(t, fakeigb.Options{Device: device})
		d.OnRead = func(o uint64, v uint32) uint32 {
			if o == fakeigb.RAH {
				v &^= 1 << 31
			}
			return v
		}
		if p := open(t, d, ethernet.Options{}); p.Info().MAC != own {
			t.Errorf("%04x: address %v", device, p.Info().MAC)
		}
	}
}

// TestStaleSemaphore opens a device whose semaphore a driver has taken and left.
func TestStaleSemaphore(t *testing.T) {
	d := newFake(t, fakeigb.Options{})
	n := 0
	d.OnRead = func(o uint64, v uint32) uint32 {
		if o == fakeigb.SWSM {
			if n++; n == 1 {
				return v | 1 // and so it stays, as reading takes it
			}
		}
		return v
	}
	open(t, d, ethernet.Options{Timeout: 4 * soon})
}

func TestQueues(t *testing.T) {
	d := newFake(t, fakeigb.Options{})
	p := open(t, d, ethernet.Options{Queues: 8, ReceiveDescriptors: 64})
	used := map[int]bool{}
	for flow := range 64 {
		data := udp4(own, flow, 40)
		data[29] = byte(flow) // of the address; the fake device hashes nothing else
		d.Arrive(data)
		for q := range 8 {
			frames, got := porttest.ReceiveAll(t, p.Queue(q))
			for i, f := range frames {
				should.Hold(t, bytes.Equal(got[i], data) && f.Flags == ethernet.Hashed && int(f.Hash&127)%8 == q,
					"flow %d in queue %d: %+v", flow, q, f)
				used[q] = true
			}
		}
	}
	should.Be(t, len(used), 8, "queues in use: %v", used)
}

func TestRestart(t *testing.T) {
	d := newFake(t, fakeigb.Options{})
	pool := porttest.NewPool(t, ethernet.PoolOptions{Buffers: 128})
	p := open(t, d, ethernet.Options{Pool: pool, ReceiveDescriptors: 64, SendDescriptors: 64, Promiscuous: true})
	group := ethernet.MAC{1, 0, 0x5e, 0, 0, 1}
	must.OK(t, errors.Join(p.SetMulticast([]ethernet.MAC{group}), p.SetVLANs([]uint16{7})))
	resets := d.Log().Resets
	// So often that a buffer that is not given back would be missed.
	for range 30 {
		end := standStill(d)
		for range 10 {
			send(t, p, 0, porttest.FrameTo(own, 60), nil)
		}
		d.Arrive(porttest.FrameTo(own, 60)) // is lost
		end()
		must.OK(t, p.Restart(contextFor(t)))
		data := porttest.FrameTo(group, 61)
		d.Arrive(data)
		_, got := porttest.ReceiveAll(t, p.Queue(0))
		porttest.Same(t, [][]byte{data}, got)
		d.With(func() {
			if d.Get(fakeigb.RCTL)&0x18 != 0x18 || d.Get(fakeigb.MTA) == 0 && d.Get(fakeigb.MTA+4*0) == 0 {
				t.Errorf("filters: RCTL %#x, MTA %#x", d.Get(fakeigb.RCTL), d.Get(fakeigb.MTA))
			}
		})
	}
	should.Be(t, d.Log().Resets-resets, 30, "resets")
	c := p.Stats()
	should.Hold(t, c.Restarts == 30 && c.Queues[0].Lost == 300, "counted %+v", c)
	// The device's own counters go on though a reset clears them.
	should.Be(t, c.Device.ReceivedFrames, 60, "the device counted frames")
}
