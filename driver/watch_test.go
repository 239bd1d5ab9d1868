package driver_test

import (
	"errors"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
)

// alerting is a device whose back end has something to say.
type alerting struct {
	*emulator.Device
	alerts chan error
}

func (a alerting) Alerts() <-chan error { return a.alerts }

// TestAlerts makes the back end take the device away, or say that it has failed,
// while somebody waits.
func TestAlerts(t *testing.T) {
	broken := errors.New("uncorrectable error")
	for _, c := range []struct {
		name        string
		alert, want error
	}{
		{"gone", vfio.ErrDeviceGone, driver.ErrDeviceGone},
		{"failed", broken, driver.ErrDeviceFault},
		{"failed, with the cause", broken, broken},
	} {
		t.Run(c.name, func(t *testing.T) {
			da, _ := devices(t, emulator.PairOptions{})
			d := alerting{da, make(chan error, 1)}
			n := open(t, d, driver.Options{})
			told := make(chan datasheet.Event, 8)
			n.OnEvent(func(e datasheet.Event) {
				if e.Code != datasheet.EventLink {
					told <- e
				}
			})
			waited := make(chan error, 1)
			go func() {
				_, err := n.ConnectWait(contextFor(t), "x")
				waited <- err
			}()
			d.alerts <- c.alert
			select {
			case e := <-told:
				should.Be(t, e.Code, datasheet.EventCatastrophic, "the handler was told %+v", e)
			case <-time.After(timeout):
				t.Error("the handler was not told")
			}
			should.Fail(t, <-waited, c.want, "the wait ended")
			should.Refuse(n.CreatePtag(contextFor(t)))(t, c.want, "a command")
		})
	}
}

// TestLookDisturbsNobody: while the device's health is being looked at, a program that
// steps it itself finds what it has posted done, as ever.
func TestLookDisturbsNobody(t *testing.T) {
	checkLeaks(t)
	a, _ := devices(t, emulator.PairOptions{Doorbells: emulator.DoorbellsMapped}) // posts alone do nothing
	n := open(t, a, driver.Options{})
	m := must.Get(n.Alloc(contextFor(t), 4096, driver.MemoryAttributes{}))(t)
	v := must.Get(n.CreateVI(contextFor(t), driver.VIAttributes{Reliability: datasheet.Unreliable, MaxTransfer: 64, SendDepth: 1, RecvDepth: 1}, nil, nil))(t)
	d := descriptor(t, m, 0, 8)
	for a.Poll() { // what setting it up has left to do
	}
	stop, stopped, looking := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		var word [4]byte
		for i := 0; ; i++ {
			if i == 1 {
				close(looking)
			}
			for _, register := range []uint64{datasheet.RegStatus, datasheet.RegResetCount} {
				should.OK(t, a.ReadRegion(vfio.RegionBAR0, datasheet.HealthOffset+register, word[:]))
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	<-looking
	steps := 20_000
	if soak.Wanted() {
		steps = 100_000
	}
	for i := range steps {
		d.Rearm()
		if err := v.PostSend(d); err != nil {
			t.Fatal(i, err)
		}
		if !a.Poll() { // not connected: it is flushed
			t.Errorf("step %d was in vain", i)
			break
		}
		if _, err := v.SendDone(); err == descriptors.ErrNotDone {
			t.Errorf("send %d is not done", i)
			break
		}
	}
	close(stop)
	<-stopped
}

// vanishing is a device that goes away when it is closed down.
type vanishing struct{ *emulator.Device }

func (vanishing) DisableIRQs(int) error { return driver.ErrDeviceGone }

func (v vanishing) UnmapDMA(iova, size uint64) error {
	return errors.Join(v.Device.UnmapDMA(iova, size), driver.ErrDeviceGone)
}

// TestCloseOfDeviceJustGone closes a NIC whose device is found gone only then: there
// is nothing that it could fail to give back.
func TestCloseOfDeviceJustGone(t *testing.T) {
	checkLeaks(t)
	a, _ := devices(t, emulator.PairOptions{})
	open(t, vanishing{a}, driver.Options{})
}

// unguarded is a device that says that no IOMMU guards it.
type unguarded struct{ *emulator.Device }

func (unguarded) Unguarded() bool { return true }

// PhysicalAddress makes addresses up: only that the driver asks is tested here.
func (unguarded) PhysicalAddress(m *vfio.Memory) (uint64, error) {
	if m.PageSize() <= 4096 {
		return 0, errors.New("not a huge page")
	}
	return m.Address() & (1<<39 - 1), nil
}

// TestUnguarded: without an IOMMU memory comes from huge pages, or not at all.
func TestUnguarded(t *testing.T) {
	a, _ := devices(t, emulator.PairOptions{})
	n, err := driver.New(contextFor(t), unguarded{a}, driver.Options{})
	if err == nil {
		should.OK(t, n.Close())
		return
	}
	should.Fail(t, err, vfio.ErrNoDMAMemory)
}
