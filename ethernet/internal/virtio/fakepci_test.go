package virtio_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/ethernet"
	_ "github.com/trapeze-nic/trapeze/ethernet/internal/virtio"
	"github.com/trapeze-nic/trapeze/vfio"
)

// Registers of the common configuration, which is at the start of BAR4, and where the other
// structures are.
const (
	regFeatureSelect = 0
	regFeature       = 4
	regStatus        = 20
	regGeneration    = 21
	regQueueSelect   = 22
	regQueueSize     = 24
	regQueueVector   = 26
	regNotifyOff     = 30
	regQueueReset    = 58
	configAt         = 0x2000
	notifyAt         = 0x3000
	bar4Size         = 0x4000
)

// fakePCI is a virtio network device as a PCI function that moves no frames. read changes what
// a register gives.
type fakePCI struct {
	vfio.Device // nil: what is not here is not called

	mu       sync.Mutex
	features uint64
	read     func(offset uint64, v uint64) uint64
	regs     map[uint64]uint64
	mapped   map[uint64]*vfio.Memory
	notified int
	closed   bool
	pulled   bool // configuration space reads as all ones
	alerts   chan error
}

func newFakePCI() *fakePCI {
	return &fakePCI{features: 1<<5 | 1<<16 | 1<<32 | 1<<33 | 1<<34 | 1<<40, regs: map[uint64]uint64{}, mapped: map[uint64]*vfio.Memory{},
		alerts: make(chan error, 1)}
}

func (d *fakePCI) Alerts() <-chan error { return d.alerts }

func (d *fakePCI) Info() vfio.Info {
	return vfio.Info{Address: "fake:", Regions: 9, IRQs: 5}
}

func (d *fakePCI) Region(index int) (vfio.RegionInfo, error) {
	switch index {
	case 4:
		return vfio.RegionInfo{Index: 4, Size: bar4Size, Flags: vfio.RegionRead | vfio.RegionWrite}, nil
	case vfio.RegionConfig:
		return vfio.RegionInfo{Index: index, Size: vfio.ConfigSize}, nil
	}
	return vfio.RegionInfo{Index: index}, nil
}

// space is configuration space: capabilities of 20 bytes each.
func (d *fakePCI) space() []byte {
	le := binary.LittleEndian
	b := make([]byte, vfio.ConfigSize)
	le.PutUint32(b, 0x1041_1af4)
	le.PutUint16(b[vfio.ConfigStatus:], 0x10)
	le.PutUint32(b[0x20:], 0xc)
	b[0x34] = 0x40
	for i, c := range [][2]uint32{{1, 0}, {4, configAt}, {2, notifyAt}} {
		at := 0x40 + 20*i
		copy(b[at:], []byte{9, byte(at + 20), 20, byte(c[0]), 4})
		le.PutUint32(b[at+8:], c[1])
		le.PutUint32(b[at+12:], 0x1000)
		le.PutUint32(b[at+16:], 4)
		if i == 2 {
			b[at+1] = 0
		}
	}
	return b
}

func (d *fakePCI) ReadRegion(index int, offset uint64, p []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if index == vfio.RegionConfig {
		copy(p, d.space()[offset:])
		if d.pulled {
			copy(p, bytes.Repeat([]byte{0xff}, len(p)))
		}
		return nil
	}
	v := d.regs[offset]
	switch offset {
	case regFeature:
		v = d.features >> (32 * (d.regs[regFeatureSelect] & 1))
	case 18: // the number of queues
		v = 2
	case regQueueSize:
		v = 256
	case regNotifyOff:
		v = d.regs[regQueueSelect]
	case regQueueReset:
		v = 0
	case configAt:
		v = 2 // of its address
	case configAt + 6:
		v = 1 // the link is up
	}
	if d.read != nil {
		v = d.read(offset, v)
	}
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], v)
	copy(p, b[:])
	return nil
}

func (d *fakePCI) WriteRegion(index int, offset uint64, p []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if index == vfio.RegionConfig {
		return nil
	}
	if offset >= notifyAt {
		d.notified++
		return nil
	}
	var b [8]byte
	copy(b[:], p)
	d.regs[offset] = binary.LittleEndian.Uint64(b[:])
	return nil
}

func (d *fakePCI) IRQ(index int) (vfio.IRQInfo, error) {
	return vfio.IRQInfo{Index: index, Count: 4, Flags: vfio.IRQEventfd}, nil
}

func (d *fakePCI) SetIRQs(int, int, []int) error { return nil }
func (d *fakePCI) DisableIRQs(int) error         { return nil }

func (d *fakePCI) IOVARanges() ([]vfio.IOVARange, error) {
	return []vfio.IOVARange{{First: 1 << 20, Last: 1<<40 - 1}}, nil
}

func (d *fakePCI) MapDMA(m *vfio.Memory, iova uint64, _ vfio.DMAFlags) error {
	d.mapped[iova] = m
	return nil
}

func (d *fakePCI) UnmapDMA(iova, _ uint64) error {
	delete(d.mapped, iova)
	return nil
}

func (d *fakePCI) Close() error {
	d.closed = true
	return nil
}

// set changes what a register gives while the port is open.
func (d *fakePCI) set(read func(offset, v uint64) uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.read = read
}

// is gives v for one register and the truth for the others.
func is(offset, v uint64) func(uint64, uint64) uint64 {
	return func(o, truth uint64) uint64 {
		if o == offset {
			return v
		}
		return truth
	}
}

func TestHostilePCI(t *testing.T) {
	changing := uint64(0)
	for _, tt := range []struct {
		name     string
		features uint64 // that change
		read     func(offset, v uint64) uint64
		want     error
	}{
		{"all ones", 0, func(uint64, uint64) uint64 { return 1<<64 - 1 }, ethernet.ErrDeviceGone},
		{"a reset that does not end", 0, is(regStatus, 1), ethernet.ErrNotReady},
		{"features not wanted", 0, func(o, v uint64) uint64 {
			if o == regStatus {
				v &^= 8
			}
			return v
		}, ethernet.ErrNotSupported},
		{"an old device", 1 << 32, nil, ethernet.ErrNotSupported},
		{"a configuration that changes for ever", 0, func(o, v uint64) uint64 {
			if o == regGeneration {
				changing++
				v = changing
			}
			return v
		}, ethernet.ErrProtocol},
		{"a group's address", 0, is(configAt, 3), ethernet.ErrProtocol},
		{"the address zero", 0, is(configAt, 0), ethernet.ErrProtocol},
		{"no queues", 0, is(18, 0), ethernet.ErrProtocol},
		{"queues without descriptors", 0, is(regQueueSize, 0), ethernet.ErrProtocol},
		{"split queues of 96", 1 << 34, is(regQueueSize, 96), ethernet.ErrProtocol},
		{"notifications outside", 0, is(regNotifyOff, 0x400), ethernet.ErrProtocol},
		{"commands are never answered", 1<<17 | 1<<18, is(18, 3), ethernet.ErrNotReady},
		{"no queue for commands", 1<<17 | 1<<18, nil, ethernet.ErrProtocol},
		{"a vector that is not taken", 0, is(regQueueVector, 9), ethernet.ErrNotSupported},
	} {
		t.Run(tt.name, func(t *testing.T) {
			leaktest.Check(t)
			d := newFakePCI()
			d.features ^= tt.features
			d.read = tt.read
			c := ethernet.Options{Pool: porttest.NewPool(t, ethernet.PoolOptions{}), Timeout: 50 * time.Millisecond, Interrupts: true, Logger: mute}
			_, err := ethernet.New(t.Context(), d, c)
			var e *ethernet.Error
			should.Hold(t, errors.Is(err, tt.want) && errors.As(err, &e) && e.Device == "fake:", "%v, want %v", err, tt.want)
			// Without the bus the device reaches nothing, so that all is given back.
			should.Hold(t, d.closed && len(d.mapped) == 0, "closed: %v, %d mappings", d.closed, len(d.mapped))
		})
	}
}

// TestPCIFails: a port notices that its device is broken, and Restart brings it back.
func TestPCIFails(t *testing.T) {
	leaktest.Check(t)
	d := newFakePCI()
	p := must.Get(ethernet.New(t.Context(), d, ethernet.Options{Pool: porttest.NewPool(t, ethernet.PoolOptions{}), Logger: mute}))(t)
	porttest.CloseAtEnd(t, p)
	i := p.Info()
	should.Hold(t, i.MAC == (ethernet.MAC{2}) && i.Options.ReceiveDescriptors == 256 && i.Driver == "virtio", "%+v", i)
	failed := func(what error) {
		t.Helper()
		waittest.Until(t, what.Error(), func() bool {
			_, err := p.Queue(0).Receive(nil)
			must.Hold(t, err == nil || errors.Is(err, what), "%v, want %v", err, what)
			return err != nil
		})
	}
	d.set(func(o, v uint64) uint64 {
		if o == regStatus && v != 0 {
			v |= 64
		}
		return v
	})
	failed(ethernet.ErrNeedsReset)
	d.set(nil)
	must.OK(t, p.Restart(context.Background()))
	_, err := p.Queue(0).Receive(nil)
	should.OK(t, err)
	// One that was reset behind our back, or removed where that reads as zero.
	d.set(is(regStatus, 0))
	failed(ethernet.ErrNeedsReset)
	d.set(nil)
	must.OK(t, p.Restart(context.Background()))
	d.mu.Lock()
	d.pulled = true
	d.mu.Unlock()
	d.set(is(regStatus, 0))
	failed(ethernet.ErrDeviceGone)
	d.set(nil)
	must.OK(t, p.Restart(context.Background()))
	d.set(func(uint64, uint64) uint64 { return 1<<64 - 1 })
	failed(ethernet.ErrDeviceGone)
}

// TestLinkFlaps: the link goes up and down all the time, which neither ends nor restarts
// anything.
func TestLinkFlaps(t *testing.T) {
	leaktest.Check(t)
	d := newFakePCI()
	p := must.Get(ethernet.New(t.Context(), d, ethernet.Options{Pool: porttest.NewPool(t, ethernet.PoolOptions{}), Logger: mute}))(t)
	porttest.CloseAtEnd(t, p)
	for i := range 200 {
		d.set(is(configAt+6, uint64(i%2)))
		must.Be(t, must.Get(p.Link())(t).Up, i%2 == 1)
		must.Get(p.Queue(0).Receive(nil))(t)
	}
	c := p.Stats()
	should.Hold(t, c.Restarts == 0 && c.Queues[0].Restarts == 0, "%+v", c)
}

// TestAlerts: what the kernel says of a device ends the port at once, and Restart begins anew.
func TestAlerts(t *testing.T) {
	leaktest.Check(t)
	d := newFakePCI()
	pool := porttest.NewPool(t, ethernet.PoolOptions{})
	p, err := ethernet.New(t.Context(), d, ethernet.Options{Pool: pool, Logger: mute})
	must.OK(t, err)
	for range 2 {
		d.alerts <- fmt.Errorf("%w: the kernel wants it back", ethernet.ErrDeviceGone)
		waittest.Until(t, "the port ends", func() bool {
			_, err = p.Queue(0).Receive(nil)
			return err != nil
		})
		var e *ethernet.Error
		must.Hold(t, errors.Is(err, ethernet.ErrDeviceGone) && errors.As(err, &e), "%v", err)
		should.Refuse(p.Link())(t, ethernet.ErrDeviceGone, "link")
		err = p.Restart(t.Context())
		must.OK(t, err)
	}
	// A device that has been pulled out leaves memory alone: every buffer is back.
	d.set(func(uint64, uint64) uint64 { return 1<<64 - 1 })
	should.OK(t, p.Close())
	n, want := pool.Free(), pool.Options().Buffers
	should.Hold(t, n == want && d.closed, "%d of %d buffers are back, closed: %v", n, want, d.closed)
}

// TestNotificationLost: a device that has missed a notification gets another.
func TestNotificationLost(t *testing.T) {
	leaktest.Check(t)
	d := newFakePCI()
	p := must.Get(ethernet.New(t.Context(), d, ethernet.Options{Pool: porttest.NewPool(t, ethernet.PoolOptions{}), Logger: mute}))(t)
	porttest.CloseAtEnd(t, p)
	notified := func() int {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.notified
	}
	before := notified()
	frames := make([]ethernet.Frame, 1)
	p.Queue(0).Cache().Alloc(frames)
	frames[0].Length = 60
	must.Give(p.Queue(0).Send(frames))(t, 1)
	waittest.Until(t, "notifications of a frame that is not sent", func() bool { return notified() >= before+3 })
	c := p.Stats().Queues[0]
	should.Hold(t, c.Restarts == 0, "%+v", c)
}

// TestWrongDevice: the refusal names what fits, and nothing is written.
func TestWrongDevice(t *testing.T) {
	d := &otherDevice{newFakePCI()}
	_, err := ethernet.New(t.Context(), d, ethernet.Options{Pool: porttest.NewPool(t, ethernet.PoolOptions{})})
	var e *ethernet.Error
	should.Hold(t, errors.Is(err, ethernet.ErrUnsupportedDevice) && errors.As(err, &e) && e.Hint != "" && d.closed && len(d.regs) == 0,
		"%v", err)
}

// otherDevice is virtio's block device.
type otherDevice struct{ *fakePCI }

func (d *otherDevice) ReadRegion(index int, offset uint64, p []byte) error {
	err := d.fakePCI.ReadRegion(index, offset, p)
	if index == vfio.RegionConfig && offset == 0 {
		p[2] = 0x42
	}
	return err
}
