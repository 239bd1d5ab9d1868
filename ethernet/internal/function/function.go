// Package function has the parts that every driver of a PCI function below ethernet needs: its
// configuration space, its registers, memory for DMA, interrupt vectors, and an end in
// the right order.
package function

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/vfio"
)

// Function is a PCI function that a driver has. Its methods are called by one goroutine
// at a time.
type Function struct {
	dev      vfio.Device
	poller   vfio.Poller // nil if the device makes progress by itself
	config   *vfio.Config
	timeout  time.Duration
	iovas    *vfio.IOVAAllocator
	physical vfio.Physical // nil behind an IOMMU

	bars      []*BAR
	mappings  []mapping
	vectors   []*vfio.Eventfd
	mastering bool // the device may do DMA

	done   chan struct{} // closed by Close
	alerts sync.WaitGroup
}

// Open takes a device: it reads its configuration space and has it answer at its memory
// BARs. timeout limits Wait. If it fails the device is still the caller's.
func Open(dev vfio.Device, timeout time.Duration) (*Function, error) {
	f := &Function{dev: dev, timeout: timeout, done: make(chan struct{})}
	f.poller, _ = dev.(vfio.Poller)
	var err error
	if f.config, err = vfio.ReadConfig(dev); err != nil {
		return nil, err
	}
	if err := f.checkMSIX(); err != nil {
		return nil, err
	}
	ranges, err := dev.IOVARanges()
	if err != nil {
		return nil, err
	}
	if p, ok := dev.(vfio.Physical); ok && p.Unguarded() {
		f.physical = p
	}
	f.iovas = vfio.NewIOVAAllocator(ranges, uint64(os.Getpagesize()))
	return f, vfio.SetCommand(f.dev, vfio.CommandMemory, 0)
}

// Config returns the configuration space, as it was read by Open.
func (f *Function) Config() *vfio.Config { return f.config }

// Device returns the device.
func (f *Function) Device() vfio.Device { return f.dev }

// checkMSIX refuses a vector table that leaves its BAR. This package does not write to it, but
// what else such a device says cannot be believed.
func (f *Function) checkMSIX() error {
	m := f.config.MSIX
	if m == nil {
		return nil
	}
	r, err := f.dev.Region(m.TableBAR)
	if err != nil {
		return err
	}
	if end := uint64(m.TableOffset) + 16*uint64(m.Vectors); end > r.Size {
		return fmt.Errorf("%w: its MSI-X table ends at %#x of BAR%d, which has %#x bytes", ethernet.ErrProtocol, end, m.TableBAR, r.Size)
	}
	return nil
}

// Master lets the device do DMA.
func (f *Function) Master() error {
	f.mastering = true
	return vfio.SetCommand(f.dev, vfio.CommandMemory|vfio.CommandBusMaster, 0)
}

// Present fails with ErrDeviceGone if the function has been removed: its configuration space
// reads as all ones then. Its registers do too on hardware; in an emulated machine they may
// read as zero.
func (f *Function) Present() error {
	// Revision and class, as Linux answers for the device when it is asked for its identity.
	var class [4]byte
	if err := f.dev.ReadRegion(vfio.RegionConfig, configClass, class[:]); err != nil {
		return err
	}
	if binary.LittleEndian.Uint32(class[:]) == 1<<32-1 {
		return fmt.Errorf("%w: its configuration space reads as all ones", ethernet.ErrDeviceGone)
	}
	return nil
}

// configClass is where revision (8 bits) and class (24) are (PCI Local Bus Specification 3.0,
// 6.1).
const configClass = 8

// Wait calls check, now and then, until it returns true or an error, ctx ends, or the
// timeout is over, which is ErrNotReady; what is waited for is in the error.
func (f *Function) Wait(ctx context.Context, what string, check func() (bool, error)) error {
	return f.WaitFor(ctx, f.timeout, what, check)
}

// WaitFor is Wait with another timeout.
func (f *Function) WaitFor(ctx context.Context, timeout time.Duration, what string, check func() (bool, error)) error {
	deadline := time.Now().Add(timeout)
	for pause := 10 * time.Microsecond; ; pause = min(2*pause, time.Millisecond) {
		if ok, err := check(); ok || err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%w: %s takes more than %v", ethernet.ErrNotReady, what, timeout)
		}
		if !f.Poll() {
			time.Sleep(pause)
		}
	}
}

// Watch calls alert with each message of the back end about the device, on a goroutine of its own,
// until Close.
func (f *Function) Watch(alert func(error)) {
	a, ok := f.dev.(vfio.Alerter)
	if !ok {
		return
	}
	f.alerts.Go(func() {
		for {
			select {
			case err, ok := <-a.Alerts():
				if !ok {
					return
				}
				alert(err)
			case <-f.done:
				return
			}
		}
	})
}

// Poll steps a device that makes progress only when it is polled, and reports whether
// anything was done.
func (f *Function) Poll() bool { return f.poller != nil && f.poller.Poll() }

// Close gives everything back: stop, the driver's way to end DMA, is called first if the
// device may do any; if that fails the device is reset by its back end. Only then memory
// is taken away from it. Memory that it could not be kept from stays mapped, its pool in
// use, and the error wraps ErrNotStopped.
func (f *Function) Close(stop func() error) error {
	close(f.done)
	f.alerts.Wait()
	var errs []error
	stopped := true
	if f.mastering {
		if err := f.quiesce(stop); err != nil {
			errs, stopped = append(errs, err), false
		}
	}
	errs = append(errs, f.closeVectors())
	if stopped {
		errs = append(errs, f.unmapAll())
	}
	for _, b := range f.bars {
		errs = append(errs, b.mapped.Close())
	}
	return errors.Join(append(errs, f.dev.Close())...)
}

func (f *Function) quiesce(stop func() error) error {
	err := vfio.Quiesce(f.dev, f.timeout, func(context.Context) error {
		if err := f.Present(); err != nil {
			return err
		}
		return stop()
	})
	if err == nil || errors.Is(err, ethernet.ErrDeviceGone) {
		return nil
	}
	return fmt.Errorf("%w: %w", ethernet.ErrNotStopped, err)
}
