package pci

import (
	"context"
	"fmt"
	"os"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/ethernet/internal/virtio/internal/transport"
	"github.com/trapeze-nic/trapeze/vfio"
)

// QueueSize returns how many descriptors a queue may have.
func (d *Device) QueueSize(_ context.Context, index int) (int, error) {
	if index < 0 || index >= d.queues {
		return 0, nil
	}
	if err := d.write(queueSelect, 2, uint32(index)); err != nil {
		return 0, err
	}
	v, err := d.read(queueSize, 2)
	return int(v), err
}

// Queue enables a queue.
func (d *Device) Queue(_ context.Context, index int, q transport.Queue) (bell transport.Doorbell, err error) {
	vector := uint32(noVector)
	if q.Interrupt >= 0 {
		vector = uint32(q.Interrupt)
	}
	fields := []field{{queueSelect, 2, uint32(index)}, {queueSize, 2, uint32(q.Size)}, {queueVector, 2, vector}}
	fields = append(fields, address(queueDescriptor, q.Descriptor)...)
	fields = append(fields, address(queueDriver, q.Driver)...)
	fields = append(fields, address(queueDevice, q.Device)...)
	if err := d.writeAll(fields...); err != nil {
		return bell, err
	}
	got, err := d.read(queueVector, 2)
	if err != nil {
		return bell, err
	}
	if got != vector {
		return bell, fmt.Errorf("%w: it does not take interrupt vector %d", ethernet.ErrNotSupported, vector)
	}
	off, err := d.read(queueNotifyOff, 2)
	if err != nil {
		return bell, err
	}
	// Neither factor has more than 32 bits.
	at := uint64(off) * d.layout.multiplier
	if at > d.layout.notify.length-leastNotify || at%2 != 0 {
		return bell, fmt.Errorf("%w: it is notified at %#x of a structure of %#x bytes", ethernet.ErrProtocol, at, d.layout.notify.length)
	}
	if err := d.write(queueEnable, 2, 1); err != nil {
		return bell, err
	}
	return d.doorbell(d.layout.notify.offset+at, uint16(index)), nil
}

// StopQueue resets a queue, if the device can do that.
func (d *Device) StopQueue(ctx context.Context, index int) error {
	if d.features&transport.FeatureQueueReset == 0 || d.layout.common.length < queueReset+2 {
		return fmt.Errorf("%w: the reset of one queue", ethernet.ErrNotSupported)
	}
	if err := d.writeAll(field{queueSelect, 2, uint32(index)}, field{queueReset, 2, 1}); err != nil {
		return err
	}
	return d.function.Wait(ctx, fmt.Sprintf("the reset of queue %d", index), func() (bool, error) {
		if _, err := d.status(); err != nil {
			return false, err
		}
		v, err := d.read(queueReset, 2)
		return v == 0, err
	})
}

// mapNotify maps the pages of the notification structure, if that can be done.
func (d *Device) mapNotify() {
	p := d.layout.notify
	dev := d.function.Device()
	info, err := dev.Region(p.bar)
	if err != nil || info.Flags&vfio.RegionMmap == 0 {
		return
	}
	page := uint64(os.Getpagesize())
	from, to := p.offset/page*page, (p.offset+p.length+page-1)/page*page
	if to > info.Size {
		return
	}
	if m, err := dev.MapRegion(p.bar, from, to-from); err == nil && uint64(len(m.Bytes())) == to-from {
		d.mapped, d.mappedAt = m, from
	}
}

// doorbell returns the doorbell at an offset of the notification structure's BAR.
func (d *Device) doorbell(offset uint64, value uint16) transport.Doorbell {
	if d.mapped == nil {
		return transport.TrappedDoorbell(d.function.Device(), d.layout.notify.bar, offset, value)
	}
	return transport.RegisterDoorbell(register16(d.mapped.Bytes()[offset-d.mappedAt:]), value)
}
