package igb_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/fakeigb"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/vfio"
)

// soon is what the device may take in tests in which it takes for ever.
const soon = 40 * time.Millisecond

// TestOpenRefuses opens devices that do not become ready. Each ends with a typed error,
// and everything given back.
func TestOpenRefuses(t *testing.T) {
	never := func(offset uint64, bits, value uint32) func(*fakeigb.Device) {
		return func(d *fakeigb.Device) {
			d.OnRead = func(o uint64, v uint32) uint32 {
				if o == offset {
					v = v&^bits | value
				}
				return v
			}
		}
	}
	mac := func(m [6]byte) func(*fakeigb.Device) {
		return func(d *fakeigb.Device) {
			d.OnRead = func(o uint64, v uint32) uint32 {
				switch o {
				case fakeigb.RAL:
					return uint32(m[0]) | uint32(m[1])<<8 | uint32(m[2])<<16 | uint32(m[3])<<24
				case fakeigb.RAH:
					return uint32(m[4]) | uint32(m[5])<<8 | 1<<31
				case fakeigb.EERD:
					return v & 0xffff
				}
				return v
			}
		}
	}
	group := mac([6]byte{1, 0, 0x5e, 0, 0, 1})
	for _, tt := range []struct {
		name   string
		break_ func(d *fakeigb.Device)
		want   error
	}{
		{"removed", func(d *fakeigb.Device) { d.Remove() }, ethernet.ErrDeviceGone},
		{"registers read as all ones", func(d *fakeigb.Device) {
			d.OnRead = func(uint64, uint32) uint32 { return 1<<32 - 1 }
		}, ethernet.ErrDeviceGone},
		{"gone in the middle", func(d *fakeigb.Device) {
			n := 0
			d.OnRead = func(_ uint64, v uint32) uint32 {
				if n++; n > 20 {
					return 1<<32 - 1
				}
				return v
			}
		}, ethernet.ErrDeviceGone},
		{"a reset that never ends", never(fakeigb.CTRL, 0, 1<<26), ethernet.ErrNotReady},
		{"a PHY that never answers", never(fakeigb.MDIC, 1<<28, 0), ethernet.ErrNotReady},
		{"a PHY that refuses", never(fakeigb.MDIC, 0, 1<<30), ethernet.ErrNotReady},
		{"no PHY", never(fakeigb.MDIC, 0, 0xffff), ethernet.ErrNotReady},
		{"firmware that keeps the PHY", never(fakeigb.SWFW, 0, 1<<17), ethernet.ErrNotReady},
		{"firmware that keeps the semaphore", never(fakeigb.SWSM, 2, 0), ethernet.ErrNotReady},
		{"drivers' semaphore taken for ever", never(fakeigb.SWSM, 0, 1), ethernet.ErrNotReady},
		{"a receive ring that stays off", never(fakeigb.RXDCTL, 1<<25, 0), ethernet.ErrNotReady},
		{"a send ring that stays off", never(fakeigb.TXDCTL, 1<<25, 0), ethernet.ErrNotReady},
		{"an NVM that never answers", func(d *fakeigb.Device) {
			d.OnRead = func(o uint64, v uint32) uint32 {
				if o == fakeigb.RAH || o == fakeigb.EERD {
					return 0
				}
				return v
			}
		}, ethernet.ErrNotReady},
		{"a group address as its own", func(d *fakeigb.Device) { group(d) }, ethernet.ErrProtocol},
		{"no address", func(d *fakeigb.Device) { mac([6]byte{})(d); clear(d.NVM[:]) }, ethernet.ErrProtocol},
		{"a BAR that is too small", func(d *fakeigb.Device) { d.RegisterBytes = 0x8000 }, ethernet.ErrProtocol},
		{"an MSI-X table that leaves its BAR", func(d *fakeigb.Device) { d.Config()[0x44] |= 0; d.Config()[0x45] = 0x40 }, ethernet.ErrProtocol},
		{"capabilities that form a loop", func(d *fakeigb.Device) { d.Config()[0x61] = 0x40 }, vfio.ErrBadConfig},
		{"configuration space that cannot be written", func(d *fakeigb.Device) { d.ConfigFails = vfio.ErrNotSupported }, vfio.ErrNotSupported},
		{"memory that cannot be mapped", func(d *fakeigb.Device) { d.MapFails = vfio.ErrIOVARange }, vfio.ErrIOVARange},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newFake(t, fakeigb.Options{})
			tt.break_(d)
			pool := porttest.NewPool(t, ethernet.PoolOptions{})
			_, err := ethernet.New(contextFor(t), d, config(t, ethernet.Options{Pool: pool, Timeout: soon}))
			var e *ethernet.Error
			must.Hold(t, errors.Is(err, tt.want) && errors.As(err, &e) && e.Device == "fake:", "got %v, want %v", err, tt.want)
			should.Be(t, pool.Free(), 4096, "buffers are back")
		})
	}
}

// TestOwnAddressReplaced has a device whose own address is bad be used with another.
func TestOwnAddressReplaced(t *testing.T) {
	d := newFake(t, fakeigb.Options{MAC: [6]byte{1, 2, 3, 4, 5, 6}})
	p := open(t, d, ethernet.Options{MAC: own})
	should.Hold(t, p.MAC() == own && d.Arrive(porttest.FrameTo(own, 60)), "address %v", p.MAC())
}

func TestOpenRefusesConfig(t *testing.T) {
	for _, tt := range []struct {
		device uint16
		config ethernet.Options
		want   error
		text   string
	}{
		{0x10c9, ethernet.Options{Queues: 17, ReceiveDescriptors: 64}, ethernet.ErrConfig, "at most 16"},
		{0x1539, ethernet.Options{Queues: 3}, ethernet.ErrConfig, "I211"},
		{0x10ca, ethernet.Options{Queues: 2}, ethernet.ErrConfig, "at most 1"},
		{0x10ca, ethernet.Options{Offloads: ethernet.OffloadHash}, ethernet.ErrNotSupported, "hash"},
		{0x10c9, ethernet.Options{Pool: porttest.NewPool(t, ethernet.PoolOptions{Size: 1984})}, ethernet.ErrConfig, "whole KiB"},
		{0x1572, ethernet.Options{}, ethernet.ErrUnsupportedDevice, "igb drives 82576"},
	} {
		d := newFake(t, fakeigb.Options{Device: tt.device})
		_, err := ethernet.New(contextFor(t), d, config(t, tt.config))
		should.Hold(t, errors.Is(err, tt.want) && strings.Contains(err.Error(), tt.text),
			"%04x: %v, want %v with %q", tt.device, err, tt.want, tt.text)
	}
}

// TestRemovedWhileWaiting finds out without being asked for the link.
func TestRemovedWhileWaiting(t *testing.T) {
	d := newFake(t, fakeigb.Options{})
	p := open(t, d, ethernet.Options{Interrupts: true})
	d.Remove()
	ctx := contextFor(t)
	var err error
	for err == nil {
		err = p.Queue(0).Wait(ctx)
	}
	should.Fail(t, err, ethernet.ErrDeviceGone)
}

// TestBadReceived makes the device say nonsense about what it has received. What is bad is
// dropped and counted, and the next good frame comes.
func TestBadReceived(t *testing.T) {
	const done, end = fakeigb.Done, fakeigb.End
	for _, tt := range []struct {
		name string
		high []uint64
		want ethernet.QueueStats
	}{
		{"longer than the MTU", []uint64{done | end | 1519<<32}, ethernet.QueueStats{BadLengths: 1}},
		{"longer than the buffer", []uint64{done | end | 0xffff<<32}, ethernet.QueueStats{BadLengths: 1}},
		{"empty", []uint64{done | end}, ethernet.QueueStats{BadLengths: 1}},
		{"shorter than a header", []uint64{done | end | 13<<32}, ethernet.QueueStats{BadLengths: 1}},
		{"an error", []uint64{done | end | fakeigb.Error | 60<<32}, ethernet.QueueStats{ReceiveErrors: 1}},
		{"in two buffers", []uint64{done | 2048<<32, done | end | 60<<32}, ethernet.QueueStats{Unended: 1}},
		{"in three, then an error", []uint64{done | 60<<32, done, done | end | 60<<32, done | end | fakeigb.Error},
			ethernet.QueueStats{Unended: 1, ReceiveErrors: 1}},
		{"all bits", []uint64{1<<64 - 1, 1<<64 - 1}, ethernet.QueueStats{ReceiveErrors: 2}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newFake(t, fakeigb.Options{})
			pool := porttest.NewPool(t, ethernet.PoolOptions{Buffers: 80})
			p := open(t, d, ethernet.Options{Pool: pool, ReceiveDescriptors: 64, Offloads: ethernet.OffloadReceiveSum | ethernet.OffloadHash})
			// So often that a buffer that is not given back would be missed.
			for range 50 {
				d.With(func() {
					for _, high := range tt.high {
						_, ok := d.Complete(0, 0, high)
						must.Hold(t, ok, "the ring is empty")
					}
				})
				good := porttest.FrameTo(own, 100)
				d.Arrive(good)
				_, data := porttest.ReceiveAll(t, p.Queue(0))
				porttest.Same(t, [][]byte{good}, data)
			}
			got := p.Stats().Queues[0]
			should.Be(t, got, ethernet.QueueStats{ReceivedFrames: 50, ReceivedBytes: 5000,
				BadLengths: 50 * tt.want.BadLengths, ReceiveErrors: 50 * tt.want.ReceiveErrors, Unended: 50 * tt.want.Unended}, "counted")
		})
	}
}

// TestNeverEnds has frames that never end fill the ring again and again: Receive gives
// nothing, and does not run for ever.
func TestNeverEnds(t *testing.T) {
	d := newFake(t, fakeigb.Options{})
	p := open(t, d, ethernet.Options{ReceiveDescriptors: 64})
	for range 20 {
		d.With(func() {
			for {
				if _, ok := d.Complete(0, 0, fakeigb.Done|2048<<32); !ok {
					return
				}
			}
		})
		must.Give(p.Queue(0).Receive(make([]ethernet.Frame, 64)))(t, 0)
	}
	c := p.Stats().Queues[0]
	should.Hold(t, c.Unended == 1, "counted %+v", c)
}

// TestDoneAgain makes the device say twice of each buffer that it is done, and of one that
// was not posted. Each buffer is in one hand only.
func TestDoneAgain(t *testing.T) {
	d := newFake(t, fakeigb.Options{})
	pool := porttest.NewPool(t, ethernet.PoolOptions{})
	p := open(t, d, ethernet.Options{Pool: pool, ReceiveDescriptors: 64})
	q := p.Queue(0)
	held := map[uint32]bool{}
	var all []ethernet.Frame
	frames := make([]ethernet.Frame, 64)
	for range 40 {
		d.Arrive(porttest.FrameTo(own, 60))
		for range 3 {
			n := must.Get(q.Receive(frames))(t)
			for _, f := range frames[:n] {
				must.Hold(t, !held[f.Buffer], "buffer %d was received twice", f.Buffer)
				held[f.Buffer] = true
				all = append(all, f)
			}
			d.With(func() { d.Again(0, 0, fakeigb.Done|fakeigb.End|60<<32) })
		}
	}
	q.Cache().Free(all)
}

// TestDoneUnposted makes the device say that it is done with all it was given, and with one
// more.
func TestDoneUnposted(t *testing.T) {
	d := newFake(t, fakeigb.Options{})
	p := open(t, d, ethernet.Options{ReceiveDescriptors: 64})
	const high = fakeigb.Done | fakeigb.End | 60<<32
	d.With(func() {
		for {
			if _, ok := d.Complete(0, 0, high); !ok {
				break
			}
		}
		d.Unposted(0, 0, high)
	})
	frames := make([]ethernet.Frame, 64)
	n, err := p.Queue(0).Receive(frames)
	should.Give(n, err)(t, 63)
	p.Queue(0).Cache().Free(frames[:n])
}

// TestBadHead makes the device tell that it has sent what it was not given: the ring is
// restarted, and works.
func TestBadHead(t *testing.T) {
	for _, head := range []uint32{5, 63, 64, 0xffff, 1<<32 - 1} {
		d := newFake(t, fakeigb.Options{})
		lying := true
		sent := 0
		d.OnSend = func(fakeigb.Sent) { sent++ }
		d.OnWrite = func(offset uint64, v uint32) bool {
			if offset == fakeigb.TDT && lying && v > 0 {
				d.ReportHead(0, head)
				return true
			}
			return false
		}
		pool := porttest.NewPool(t, ethernet.PoolOptions{Buffers: 128})
		p := open(t, d, ethernet.Options{Pool: pool, ReceiveDescriptors: 64, SendDescriptors: 64})
		for range 3 {
			send(t, p, 0, porttest.FrameTo(own, 60), nil)
		}
		must.Get(p.Queue(0).Unsent())(t)
		waittest.Until(t, "the ring is restarted", func() bool { return p.Stats().Queues[0].Restarts > 0 })
		c := p.Stats().Queues[0]
		should.Hold(t, c.Restarts == 1 && c.Lost == 3, "head %#x: counted %+v", head, c)
		d.With(func() { lying = false })
		for range 200 {
			send(t, p, 0, porttest.FrameTo(own, 60), nil)
		}
		should.Be(t, sent, 200, "head %#x: frames were sent afterwards", head)
	}
}

// standStill stalls the send ring of a device.
func standStill(d *fakeigb.Device) (end func()) {
	still := true
	d.OnWrite = func(offset uint64, v uint32) bool { return still && offset == fakeigb.TDT && v != 0 }
	return func() { d.With(func() { still = false }) }
}

// TestSendSlowly makes a full ring move on from time to time: it does not stand still.
func TestSendSlowly(t *testing.T) {
	const timeout = 500 * time.Millisecond
	d := newFake(t, fakeigb.Options{})
	end := standStill(d)
	p := open(t, d, ethernet.Options{SendDescriptors: 64, Timeout: timeout})
	fill := func() {
		for {
			if n, err := porttest.TrySend(p.Queue(0), porttest.FrameTo(own, 60), nil); err != nil {
				t.Fatal(err)
			} else if n == 0 {
				return
			}
		}
	}
	head := uint32(0)
	for start := time.Now(); time.Since(start) < 3*timeout/2; head = (head + 1) % 64 {
		fill()
		time.Sleep(timeout / 100)
		d.With(func() { d.ReportHead(0, head) })
	}
	c := p.Stats().Queues[0]
	should.Hold(t, c.Restarts == 0, "counted %+v", c)
	end()
}

// TestSendCannotBeStopped has a send ring that stands still and cannot be switched off:
// the port fails, and can be restarted.
func TestSendCannotBeStopped(t *testing.T) {
	d := newFake(t, fakeigb.Options{})
	end := standStill(d)
	p := open(t, d, ethernet.Options{SendDescriptors: 64, Timeout: soon})
	d.With(func() {
		d.OnRead = func(o uint64, v uint32) uint32 {
			if o == fakeigb.TXDCTL {
				v |= 1 << 25
			}
			return v
		}
	})
	var err error
	for start := time.Now(); err == nil && time.Since(start) < timeout; {
		_, err = porttest.TrySend(p.Queue(0), porttest.FrameTo(own, 60), nil)
	}
	must.Hold(t, errors.Is(err, ethernet.ErrNotReady), "got %v", err)
	should.Refuse(p.Queue(0).Receive(make([]ethernet.Frame, 1)))(t, ethernet.ErrNotReady, "receive")
	end()
	must.OK(t, p.Restart(contextFor(t)))
	send(t, p, 0, porttest.FrameTo(own, 60), nil)
	c := p.Stats()
	should.Hold(t, c.Restarts == 1 && c.Queues[0].Lost == 63, "counted %+v", c)
}

// TestCloseStops looks at how DMA ends before memory goes.
func TestCloseStops(t *testing.T) {
	stuck := func(d *fakeigb.Device) {
		d.OnRead = func(o uint64, v uint32) uint32 {
			if o == fakeigb.CTRL {
				v |= 1 << 26
			}
			return v
		}
	}
	for _, tt := range []struct {
		name   string
		break_ func(d *fakeigb.Device)
		resets int // by the back end
		want   error
	}{
		{"sound", func(*fakeigb.Device) {}, 0, nil},
		{"a reset that never ends", stuck, 1, nil},
		{"no reset at all", func(d *fakeigb.Device) { stuck(d); d.ResetFails = vfio.ErrNotSupported }, 1, nil},
		{"no reset, and it keeps the bus", func(d *fakeigb.Device) {
			stuck(d)
			d.ResetFails, d.ConfigFails = vfio.ErrNotSupported, vfio.ErrNotSupported
		}, 1, ethernet.ErrNotStopped},
		{"memory that cannot be taken away", func(d *fakeigb.Device) { d.UnmapFails = vfio.ErrNotSupported }, 0, vfio.ErrNotSupported},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newFake(t, fakeigb.Options{})
			pool := must.Get(ethernet.NewPool(ethernet.PoolOptions{}))(t)
			p := must.Get(ethernet.New(contextFor(t), d, config(t, ethernet.Options{Pool: pool, Timeout: soon})))(t)
			d.With(func() { tt.break_(d) })
			err := p.Close()
			should.Hold(t, errors.Is(err, tt.want) && (err == nil) == (tt.want == nil), "close: %v, want %v", err, tt.want)
			should.Be(t, d.Log().BackendResets, tt.resets, "resets by the back end")
			// What the device may still reach is nobody else's.
			err = pool.Close()
			should.Hold(t, errors.Is(err, ethernet.ErrInUse) == (tt.want != nil), "close of the pool: %v", err)
		})
	}
}

// FuzzReceived makes the device write anything into its receive ring. Frames that come lie
// in their buffers, and no buffer is lost or in two hands.
func FuzzReceived(f *testing.F) {
	f.Add([]byte{3, 0, 0, 0, 60, 0, 0, 0})
	f.Add([]byte{1, 0, 0, 0, 0, 8, 0, 0, 3, 0, 0, 0, 60, 0, 0, 0})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0x0b, 0, 0, 0, 0xee, 5, 0x12, 0x34, 3, 0, 0, 0x60, 14, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		d := newFake(t, fakeigb.Options{})
		pool := porttest.NewPool(t, ethernet.PoolOptions{Buffers: 100})
		p := open(t, d, ethernet.Options{Pool: pool, ReceiveDescriptors: 64, Offloads: ethernet.OffloadAll})
		frames := make([]ethernet.Frame, 32)
		for len(b) >= 8 {
			for range 16 {
				if len(b) < 8 {
					break
				}
				high := uint64(0)
				for i := range 8 {
					high |= uint64(b[i]) << (8 * i)
				}
				b = b[8:]
				d.With(func() { d.Complete(0, high*3, high) })
			}
			n := must.Get(p.Queue(0).Receive(frames))(t)
			for _, f := range frames[:n] {
				must.Hold(t, pool.Contains(&f) && f.Length >= ethernet.HeaderSize && f.Length <= 1518, "got %+v", f)
			}
			p.Queue(0).Cache().Free(frames[:n])
		}
		must.OK(t, p.Close())
		should.Be(t, pool.Free(), 100, "of 100 buffers are back")
	})
}
