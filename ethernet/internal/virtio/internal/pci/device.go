// Package pci reaches virtio network devices that are PCI functions, by the structures of
// virtio 1.0 and newer ("Virtio Over PCI Bus").
//
// Where these structures are is the device's word: they are checked before anything is
// accessed. Queues are set up by registers, at the width of each; notifications are stores
// of 16 bits where the BAR can be mapped.
package pci

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/ethernet/internal/function"
	"github.com/trapeze-nic/trapeze/ethernet/internal/virtio/internal/transport"
	"github.com/trapeze-nic/trapeze/vfio"
)

// Device is a PCI function. It implements transport.Transport.
type Device struct {
	function  *function.Function
	layout    layout
	queues    int
	features  uint64
	mapped    *vfio.Mapping // of notifications; nil if they are trapped
	mappedAt  uint64
	mastering bool
	alert     atomic.Pointer[error] // what the back end has said since Reset
}

// New takes a device, whose accesses may take as long as timeout. It has alert called when the back
// end says that the device has failed or is taken away. If New fails the device is still the caller's.
func New(dev vfio.Device, timeout time.Duration, alert func()) (*Device, error) {
	f, err := function.Open(dev, timeout)
	if err != nil {
		return nil, err
	}
	d := &Device{function: f}
	space := make([]byte, vfio.ConfigSize)
	if err := dev.ReadRegion(vfio.RegionConfig, 0, space); err != nil {
		return nil, err
	}
	// It may not be what it was a moment ago.
	c, err := vfio.ParseConfig(space)
	if err != nil {
		return nil, err
	}
	var failed error
	d.layout, err = findLayout(c, space, func(index int) uint64 {
		if k := c.BARs[index].Kind; k == vfio.BARIO || k == vfio.BARUpper {
			return 0
		}
		r, err := dev.Region(index)
		failed = errors.Join(failed, err)
		return r.Size
	})
	if err = errors.Join(failed, err); err != nil {
		return nil, err
	}
	d.mapNotify()
	f.Watch(func(err error) {
		if d.alert.CompareAndSwap(nil, &err) {
			alert()
		}
	})
	return d, nil
}

// Health returns what the back end has said, or else reads the device status.
func (d *Device) Health() error {
	if err := d.alert.Load(); err != nil {
		return *err
	}
	v, err := d.status()
	if err == nil && v == 0 { // it was reset, but not by us
		err = cmp.Or(d.function.Present(), ethernet.ErrNeedsReset)
	}
	if err == nil && v&transport.StatusNeedsReset != 0 {
		err = ethernet.ErrNeedsReset
	}
	return err
}

// Reset resets the device.
func (d *Device) Reset(ctx context.Context) (uint64, error) {
	if err := d.Stop(ctx); err != nil {
		return 0, err
	}
	d.alert.Store(nil)
	for _, status := range []uint32{transport.StatusAcknowledge, transport.StatusAcknowledge | transport.StatusDriver} {
		if err := d.write(deviceStatus, 1, status); err != nil {
			return 0, err
		}
	}
	n, err := d.read(numQueues, 2)
	if err != nil {
		return 0, err
	}
	d.queues = int(n)
	var features uint64
	for half := range uint32(2) {
		if err := d.write(deviceFeatureSelect, 4, half); err != nil {
			return 0, err
		}
		v, err := d.read(deviceFeature, 4)
		if err != nil {
			return 0, err
		}
		features |= uint64(v) << (32 * half)
	}
	// All ones may be features, or a device that has gone since.
	if _, err := d.status(); err != nil {
		return 0, err
	}
	if !d.mastering {
		if err := d.function.Master(); err != nil {
			return 0, err
		}
		d.mastering = true
	}
	return features, nil
}

// Accept says which features are used.
func (d *Device) Accept(_ context.Context, features uint64) error {
	const status = transport.StatusAcknowledge | transport.StatusDriver | transport.StatusFeaturesOK
	err := d.writeAll(field{driverFeatureSelect, 4, 0}, field{driverFeature, 4, uint32(features)},
		field{driverFeatureSelect, 4, 1}, field{driverFeature, 4, uint32(features >> 32)},
		field{configVector, 2, noVector}, field{deviceStatus, 1, status})
	if err != nil {
		return err
	}
	v, err := d.status()
	if err != nil {
		return err
	}
	if v&transport.StatusFeaturesOK == 0 {
		return fmt.Errorf("%w: the device does not want features %#x: its status is %#x", ethernet.ErrNotSupported, features, v)
	}
	d.features = features
	return nil
}

// maxGenerations is the number of times that the configuration is read while it changes.
const maxGenerations = 16

// Config reads the configuration, until it has not changed meanwhile.
func (d *Device) Config(context.Context) (transport.Config, error) {
	p := d.layout.device
	for range maxGenerations {
		before, err := d.read(configGeneration, 1)
		if err != nil {
			return transport.Config{}, err
		}
		var b [transport.ConfigSize + 3]byte
		// In pieces that every field is made of: bytes, and words of 16 and 32 bits.
		for at := uint64(0); at < min(p.length, transport.ConfigSize); {
			size := uint64(2)
			switch {
			case at < 6 || at >= 16:
				size = 1
			case at == 12:
				size = 4
			}
			if at+size > p.length {
				break
			}
			if err := d.function.Device().ReadRegion(p.bar, p.offset+at, b[at:at+size]); err != nil {
				return transport.Config{}, err
			}
			at += size
		}
		after, err := d.read(configGeneration, 1)
		if err != nil {
			return transport.Config{}, err
		}
		if before != after {
			continue
		}
		if _, err := d.status(); err != nil {
			return transport.Config{}, err
		}
		return transport.ParseConfig(b[:], 1), nil
	}
	return transport.Config{}, fmt.Errorf("%w: its configuration changes for ever", ethernet.ErrProtocol)
}

// Alloc allocates memory for both sides.
func (d *Device) Alloc(size uint64) ([]byte, uint64, error) { return d.function.Alloc(size) }

// MapPool lets the device reach the buffers of a pool.
func (d *Device) MapPool(p *ethernet.Pool) (uint64, error) { return d.function.MapPool(p) }

// Interrupts connects eventfds to MSI-X vectors, from 0 on.
func (d *Device) Interrupts(eventfds []int) (int, error) {
	info, err := d.function.Device().IRQ(vfio.IRQMSIX)
	if err != nil || len(eventfds) == 0 || info.Count < len(eventfds) || info.Flags&vfio.IRQEventfd == 0 {
		return 0, nil
	}
	return len(eventfds), d.function.Device().SetIRQs(vfio.IRQMSIX, 0, eventfds)
}

// Ready starts the device.
func (d *Device) Ready(context.Context) error {
	return d.write(deviceStatus, 1, transport.StatusAcknowledge|transport.StatusDriver|transport.StatusFeaturesOK|transport.StatusDriverOK)
}

// Stop resets the device: then it leaves all memory alone.
func (d *Device) Stop(ctx context.Context) error {
	if err := d.write(deviceStatus, 1, 0); err != nil {
		return err
	}
	return d.function.Wait(ctx, "its reset", func() (bool, error) {
		v, err := d.status()
		return v == 0, err
	})
}

// Close stops the device and gives everything back.
func (d *Device) Close() error {
	var err error
	if d.mapped != nil {
		err = d.mapped.Close()
	}
	return errors.Join(err, d.function.Close(func() error { return d.Stop(context.Background()) }))
}
