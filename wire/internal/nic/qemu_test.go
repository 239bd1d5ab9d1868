package nic_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/qemutest"
	"github.com/trapeze-nic/trapeze/ci/kit/qtest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/ci/kit/wiretest"
	"github.com/trapeze-nic/trapeze/conform"
	_ "github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/ethernet"
	_ "github.com/trapeze-nic/trapeze/ethernet/drivers"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/via"
	"github.com/trapeze-nic/trapeze/wire/internal/nic"
)

// The tests below have wires over two of QEMU's 82576, which are joined by a cable. They
// are skipped where there is no QEMU.

// models is the machine whose device N is at "qemu:N", and the devices that are open.
var models struct {
	sync.Mutex
	machine *qtest.Machine
	open    map[int]*counted
}

// counted counts writes to registers.
type counted struct {
	*qtest.Device
	writes atomic.Uint64
}

func (c *counted) WriteRegion(index int, offset uint64, p []byte) error {
	c.writes.Add(1)
	return c.Device.WriteRegion(index, offset, p)
}

func init() {
	ethernet.RegisterScheme("qemu", func(ctx context.Context, a vfio.Address, c ethernet.Options) (ethernet.Port, error) {
		models.Lock()
		defer models.Unlock()
		n, err := strconv.Atoi(a.Path)
		if err != nil {
			return nil, err
		}
		d, err := models.machine.Open(n)
		if err != nil {
			return nil, err
		}
		models.open[n] = &counted{Device: d}
		c.Timeout = timeout // the machine may be busy
		return ethernet.New(ctx, models.open[n], c)
	})
}

// startModels starts a machine with two NICs on a cable.
func startModels(t *testing.T) *qtest.Machine {
	t.Helper()
	m := qemutest.Start(t, "igb,mac=02:00:00:00:00:01", "igb,mac=02:00:00:00:00:02")
	for n := range 2 {
		must.OK(t, m.Connect(n, m.NetAddr(1-n)))
	}
	models.Lock()
	models.machine, models.open = m, map[int]*counted{}
	models.Unlock()
	return m
}

func openModels(t *testing.T) (a, b *nic.Port) {
	t.Helper()
	a, b = open(t, nic.Options{Address: "qemu:0"}), open(t, nic.Options{Address: "qemu:1"})
	waittest.Until(t, "the link is up", func() bool { return a.LinkUp() && b.LinkUp() })
	return a, b
}

// TestQEMUFlush counts what a burst costs: one register access, whatever is in it.
func TestQEMUFlush(t *testing.T) {
	startModels(t)
	a, b := openModels(t)
	should.Hold(t, a.MAC() == [6]byte{2, 0, 0, 0, 0, 1} && a.MTU() == 1514, "station %v, MTU %d", a.MAC(), a.MTU())
	models.Lock()
	device := models.open[0]
	models.Unlock()
	for round := range 30 {
		n := 1 + round
		before := device.writes.Load()
		for i := range n {
			// To everybody, and numbered behind the addresses.
			f := a.Reserve(100 + i)
			clear(f)
			for j := range 6 {
				f[j] = 255
			}
			f[6], f[14] = 2, byte(i)
			a.Commit()
		}
		a.Flush()
		should.Be(t, device.writes.Load()-before, 1, "%d frames took register accesses", n)
		for i := range n {
			f := wiretest.Await(t, b)
			must.Hold(t, len(f) == 100+i && f[14] == byte(i), "frame %d of %d: %d bytes, number %d", i, n, len(f), f[14])
			b.Release()
		}
	}
	if s := a.Stats(); s.NIC.Device == nil || s.NIC.Device.SentFrames != 30*31/2 || s.Lost+s.Bad != 0 {
		t.Errorf("%+v, %+v", s, s.NIC.Device)
	}
}

// TestQEMUWake: the NIC's interrupt wakes whoever sleeps.
func TestQEMUWake(t *testing.T) {
	startModels(t)
	a, b := openModels(t)
	wake, woken := waittest.Bell()
	b.SetWake(wake)
	for i := range 10 {
		for range 600 { // many looks in vain, then nobody looks
			b.Receive()
		}
		time.Sleep(time.Duration(i) * time.Millisecond)
		must.Be(t, put(a, 255, 100), true, "no room")
		a.Flush()
		<-woken
		get(t, b, 255, 100)
	}
	if s := b.Stats(); s.Wakes < 10 || s.NIC.Queues[0].Interrupts == 0 {
		t.Errorf("%+v", s)
	}
}

// TestQEMULink: a cable that is pulled out takes the link down, and comes back.
func TestQEMULink(t *testing.T) {
	m := startModels(t)
	a, _ := openModels(t)
	for _, up := range []bool{false, true} {
		must.OK(t, m.SetLink(0, up))
		waittest.Until(t, fmt.Sprintf("the link is up: %v", up), func() bool { return a.LinkUp() == up })
	}
}

// TestQEMUVIA runs a part of the suite of VIA: to open such a NIC takes a second.
func TestQEMUVIA(t *testing.T) {
	startModels(t)
	conform.VIs().Run(t, "igb", func(t *testing.T) (a, b *via.NIC) {
		ctx, cancel := context.WithTimeout(t.Context(), conform.Timeout)
		defer cancel()
		var ends [2]*via.NIC
		for i := range ends {
			ends[i] = must.Get(via.Open(ctx, fmt.Sprintf("eth:qemu:%d", i), via.Options{Logger: quiet}))(t)
			t.Cleanup(func() { _ = ends[i].Close() })
		}
		return ends[0], ends[1]
	}, "send-receive/reliable", "send-receive/around the frame", "send-receive/scatter gather", "send-receive/immediate data",
		"reliability/order and flow control", "send-receive/waits", "states/reconnect", "connection/reject", "errors/close wakes waiters")
}

// TestQEMURemoved: a NIC that goes away takes the link with it, and nothing waits for it.
func TestQEMURemoved(t *testing.T) {
	m := startModels(t)
	a, _ := openModels(t)
	must.OK(t, m.Unplug(0))
	waittest.Until(t, "the link is down", func() bool { a.Receive(); return !a.LinkUp() })
	waittest.Until(t, "the reason is known", func() bool { return a.Stats().Err != nil })
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
		if put(a, 1, 64) {
			a.Flush()
		}
		must.Be(t, a.Receive() != nil, false, "a frame of a NIC that is gone")
	}
}
