package kernel

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/trapeze-nic/trapeze/vfio"
)

// ErrDeviceFault: PCI Express reported an uncorrectable error of the device, or
// the device was reset together with another one. What it was doing is lost; a
// reset may bring it back.
var ErrDeviceFault = errors.New("device has failed")

// alerts are the kernel's messages about a device.
type alerts struct {
	channel chan error
	fds     []*vfio.Eventfd
	stop    chan struct{}
	wait    sync.WaitGroup

	mu    sync.Mutex
	ended bool
}

// Alerts returns what the kernel says unasked. An error that wraps
// ErrDeviceFault says that the device must be reset; one that wraps
// vfio.ErrDeviceGone that the kernel wants it back: close it within two
// seconds, or it is taken away as the package says. The channel holds a few
// alerts, drops those that are not received, and is closed by Close.
func (d *Device) Alerts() <-chan error { return d.alerts.channel }

// arm connects the interrupts that are the device's own.
func (d *Device) arm() error {
	d.alerts.channel = make(chan error, 4)
	d.alerts.stop = make(chan struct{})
	for _, a := range []struct {
		index int
		watch func(*vfio.Eventfd)
	}{{vfio.IRQErr, d.watchErrors}, {vfio.IRQReq, d.watchRequests}} {
		if a.index >= len(d.irqs) || d.irqs[a.index].Count == 0 {
			continue
		}
		op := fmt.Sprintf("listen to the %s interrupt of", irqName(a.index))
		fd, err := vfio.NewEventfd()
		if err != nil {
			return errors.Join(d.fail(op, err, ""), d.disarm())
		}
		d.alerts.fds = append(d.alerts.fds, fd)
		if _, err := d.setEventfds(a.index, 0, []int{fd.FD()}); err != nil {
			return errors.Join(d.fail(op, err, ""), d.disarm())
		}
		d.alerts.wait.Go(func() { a.watch(fd) })
	}
	return nil
}

// disarm ends what arm began. The kernel lets go of the eventfds when the
// device is closed.
func (d *Device) disarm() error {
	var errs []error
	close(d.alerts.stop)
	for _, fd := range d.alerts.fds {
		errs = append(errs, fd.Close())
	}
	d.alerts.wait.Wait()
	d.alerts.mu.Lock()
	d.alerts.ended = true
	close(d.alerts.channel)
	d.alerts.mu.Unlock()
	return errors.Join(errs...)
}

// disconnectAll turns all interrupts off, the device's own included.
func (d *Device) disconnectAll() error {
	errs := []error{d.disconnectVectors()}
	for _, index := range []int{vfio.IRQErr, vfio.IRQReq} {
		if index < len(d.irqs) && d.irqs[index].Count > 0 {
			errs = append(errs, d.act(index))
		}
	}
	return errors.Join(errs...)
}

func (d *Device) alert(err error, hint string) {
	d.alerts.mu.Lock()
	defer d.alerts.mu.Unlock()
	if d.alerts.ended {
		return
	}
	select {
	case d.alerts.channel <- d.fail("use", err, hint):
	default:
	}
}

func (d *Device) watchErrors(fd *vfio.Eventfd) {
	for fd.Wait(context.Background()) == nil {
		d.alert(fmt.Errorf("%w: PCI Express reports an uncorrectable error", ErrDeviceFault), "reset it, or close it and look at dmesg")
	}
}

// watchRequests waits until the kernel wants the device back, then until it is
// closed or the time is over.
func (d *Device) watchRequests(fd *vfio.Eventfd) {
	if fd.Wait(context.Background()) != nil {
		return
	}
	cause := fmt.Errorf("%w: the kernel wants it back, to unbind or remove it", vfio.ErrDeviceGone)
	d.alert(cause, "close it")
	select {
	case <-d.alerts.stop:
	case <-time.After(d.host.grace):
		d.revoke(cause)
	}
}
