package driver_test

import (
	"errors"
	"testing"
	"time"

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

// TestAlerts has the back end take the device away, or say that it has failed,
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
			da, db, err := emulator.Pair(emulator.PairOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			d := alerting{da, make(chan error, 1)}
			n, err := driver.New(contextFor(t), d, driver.Options{})
			if err != nil {
				t.Fatal(err)
			}
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
				if e.Code != datasheet.EventCatastrophic {
					t.Errorf("the handler was told %+v", e)
				}
			case <-time.After(timeout):
				t.Error("the handler was not told")
			}
			if err := <-waited; !errors.Is(err, c.want) {
				t.Errorf("the wait ended with %v, want %v", err, c.want)
			}
			if _, err := n.CreatePtag(contextFor(t)); !errors.Is(err, c.want) {
				t.Errorf("a command: %v", err)
			}
			if err := n.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestLookDisturbsNobody: while the device's health is being looked at, a program that
// steps it itself finds what it has posted done, as ever.
func TestLookDisturbsNobody(t *testing.T) {
	checkLeaks(t)
	a, b, err := emulator.Pair(emulator.PairOptions{Doorbells: emulator.DoorbellsMapped}) // posts alone do nothing
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	n, err := driver.New(contextFor(t), a, driver.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	m, err := n.Alloc(contextFor(t), 4096, driver.MemoryAttributes{})
	if err != nil {
		t.Fatal(err)
	}
	v, err := n.CreateVI(contextFor(t), driver.VIAttributes{Reliability: datasheet.Unreliable, MaxTransfer: 64, SendDepth: 1, RecvDepth: 1}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
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
				if err := a.ReadRegion(vfio.RegionBAR0, datasheet.HealthOffset+register, word[:]); err != nil {
					t.Error(err)
				}
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
	a, b, err := emulator.Pair(emulator.PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	n, err := driver.New(contextFor(t), vanishing{a}, driver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
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
	a, b, err := emulator.Pair(emulator.PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	n, err := driver.New(contextFor(t), unguarded{a}, driver.Options{})
	if err == nil {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
		return
	}
	if !errors.Is(err, vfio.ErrNoDMAMemory) {
		t.Error(err)
	}
}
