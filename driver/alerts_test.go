package driver_test

import (
	"errors"
	"testing"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/driver/drivertest"
	"github.com/trapeze-nic/trapeze/emulator"
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
			da, db, err := emulator.Pair()
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			d := alerting{da, make(chan error, 1)}
			n, err := driver.New(drivertest.Context(t), d, driver.Options{})
			if err != nil {
				t.Fatal(err)
			}
			waited := make(chan error, 1)
			go func() {
				_, err := n.ConnectWait(drivertest.Context(t), []byte("x"))
				waited <- err
			}()
			d.alerts <- c.alert
			if err := <-waited; !errors.Is(err, c.want) {
				t.Errorf("the wait ended with %v, want %v", err, c.want)
			}
			if _, err := n.CreatePtag(drivertest.Context(t)); !errors.Is(err, c.want) {
				t.Errorf("a command: %v", err)
			}
			if err := n.Close(); err != nil {
				t.Error(err)
			}
		})
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
	a, b, err := emulator.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	n, err := driver.New(drivertest.Context(t), unguarded{a}, driver.Options{})
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
