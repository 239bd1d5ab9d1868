package virtio_test

import (
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ci/kit/qemutest"
	"github.com/trapeze-nic/trapeze/ci/kit/qtest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/ethernet"
	_ "github.com/trapeze-nic/trapeze/ethernet/internal/virtio"
)

// openQEMU opens device n of a machine, with a pool unless c has one.
func openQEMU(t testing.TB, m *qtest.Machine, n int, c ethernet.Options) ethernet.Port {
	t.Helper()
	if c.Pool == nil {
		c.Pool = porttest.NewPool(t, ethernet.PoolOptions{Buffers: 2048})
	}
	d := must.Get(m.Open(n))(t)
	p := must.Get(ethernet.New(t.Context(), d, c))(t)
	porttest.CloseAtEnd(t, p)
	return p
}

// TestQEMU exchanges frames between two of QEMU's models.
func TestQEMU(t *testing.T) {
	for _, tt := range []struct{ name, options string }{
		{"split", ",packed=off"},
		{"packed", ",packed=on"},
		{"split, no event index", ",packed=off,event_idx=off"},
		{"packed, no event index", ",packed=on,event_idx=off"},
		{"behind an IOMMU", ",packed=on,iommu_platform=on"},
		{"no merging, no control", ",mrg_rxbuf=off,ctrl_vq=off"},
		{"transitional", ",disable-legacy=off"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, b := qemuPair(t, tt.options, ethernet.Options{}, ethernet.Options{Interrupts: true})
			should.Hold(t, a.MAC() == (ethernet.MAC{2, 0, 0, 0, 0, 1}) && b.Info().Vectors == 1, "%v, %+v", a.MAC(), b.Info())
			should.Be(t, must.Get(ethernet.WaitLink(t.Context(), a))(t).Up, true)
			porttest.Exchange(t, a.Queue(0), b.Queue(0), 500, 16)
			porttest.Exchange(t, b.Queue(0), a.Queue(0), 500, 16)
			must.OK(t, b.Restart(t.Context()))
			porttest.Exchange(t, a.Queue(0), b.Queue(0), 100, 16)
			porttest.Exchange(t, b.Queue(0), a.Queue(0), 100, 16)
			// Frames that were there before anybody waited have needed no interrupt.
			for i := 0; i < 100 && b.Stats().Queues[0].Interrupts == 0; i++ {
				var sender sync.WaitGroup
				sender.Go(func() {
					time.Sleep(2 * time.Millisecond)
					porttest.Send(t, a.Queue(0), 0, 1)
				})
				err := b.Queue(0).Wait(t.Context())
				sender.Wait()
				must.OK(t, err)
				waittest.Until(t, "a frame comes", func() bool { return porttest.Receive(t, b.Queue(0), 0) == 1 })
			}
			if c := b.Stats(); c.Queues[0].Interrupts == 0 || c.Restarts != 1 || c.Queues[0].BadLengths+c.Queues[0].Unended+c.Queues[0].Lost != 0 {
				t.Errorf("%+v", c)
			}
		})
	}
}

// TestQEMUNumbered exchanges many numbered frames, none of which may be lost, as at most 64
// are under way: a million each way in a long run.
func TestQEMUNumbered(t *testing.T) {
	count := 5_000
	if os.Getenv(soak.Variable) != "" { // not soak.Wanted: CI's step of that name has no QEMU
		count = 1_000_000
	}
	for _, packed := range []string{"off", "on"} {
		t.Run("packed="+packed, func(t *testing.T) {
			a, b := qemuPair(t, ",packed="+packed, ethernet.Options{}, ethernet.Options{})
			began := time.Now()
			porttest.Exchange(t, a.Queue(0), b.Queue(0), count, 64)
			porttest.Exchange(t, b.Queue(0), a.Queue(0), count, 64)
			t.Logf("%.0f frames/s", 2*float64(count)/time.Since(began).Seconds())
			for _, p := range []ethernet.Port{a, b} {
				if c := p.Stats().Queues[0]; c.SentFrames != uint64(count) || c.ReceivedFrames != uint64(count) || c.BadLengths+c.Unended+c.Lost+c.Restarts != 0 {
					t.Errorf("%+v", c)
				}
			}
		})
	}
}

// TestQEMUControl tells a device which frames to receive.
func TestQEMUControl(t *testing.T) {
	m := qemutest.Start(t, "virtio-net-pci,packed=on,mq=on,vectors=8,mac=02:00:00:00:00:01")
	p := openQEMU(t, m, 0, ethernet.Options{MAC: ethernet.MAC{2, 0, 0, 0, 0, 9}})
	for _, err := range []error{p.SetPromiscuous(true), p.SetPromiscuous(false), p.SetMAC(ethernet.MAC{2, 0, 0, 0, 0, 7}),
		p.SetMulticast([]ethernet.MAC{{1, 0, 0x5e, 0, 0, 1}}), p.SetMulticast(make300()), p.SetMulticast(nil), p.SetVLANs(nil)} {
		should.OK(t, err)
	}
	if err := p.SetMAC(ethernet.MAC{1}); !errors.Is(err, ethernet.ErrConfig) || p.MAC() != (ethernet.MAC{2, 0, 0, 0, 0, 7}) {
		t.Errorf("a group's address: %v, %v", err, p.MAC())
	}
	should.Fail(t, p.SetVLANs([]uint16{1}), ethernet.ErrNotSupported, "VLANs")
	must.OK(t, m.SetLink(0, false))
	should.Be(t, must.Get(p.Link())(t).Up, false)
}

// make300 makes more groups than are told to a device.
func make300() (groups []ethernet.MAC) {
	for i := range 300 {
		groups = append(groups, ethernet.MAC{1, 0, 0x5e, 0, byte(i >> 8), byte(i)})
	}
	return groups
}

// TestQEMUUnplug takes the device away.
func TestQEMUUnplug(t *testing.T) {
	m := qemutest.Start(t, "virtio-net-pci")
	p := openQEMU(t, m, 0, ethernet.Options{})
	must.OK(t, m.Unplug(0))
	_, err := p.Queue(0).Receive(nil)
	for ; err == nil; _, err = p.Queue(0).Receive(nil) {
		werr := p.Queue(0).Wait(t.Context())
		must.Hold(t, werr == nil || errors.Is(werr, ethernet.ErrDeviceGone), "%v", werr)
	}
	should.Fail(t, err, ethernet.ErrDeviceGone)
	should.Fail(t, p.Restart(t.Context()), ethernet.ErrDeviceGone, "restart")
}
