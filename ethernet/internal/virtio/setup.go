package virtio

import (
	"context"
	"fmt"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/ethernet/internal/virtio/internal/transport"
	"github.com/trapeze-nic/trapeze/ethernet/internal/virtio/internal/virtqueue"
	"github.com/trapeze-nic/trapeze/internal/mac"
)

// wanted are the features that are used wherever the device has them. Checksums and long
// segments of others are not among them: received frames are whole, and checked by who
// wants to know.
const wanted = transport.FeatureVersion1 | transport.FeatureAccessPlatform | transport.FeatureOrderPlatform |
	transport.FeatureEventIndex | transport.FeatureQueueReset | transport.FeatureMAC | transport.FeatureStatus |
	transport.FeatureSpeed | transport.FeatureMergeable | transport.FeatureControl | transport.FeatureControlReceive |
	transport.FeatureControlMAC

// setUp makes everything for a device that is new, and starts it.
func (d *device) setUp(ctx context.Context) error {
	if d.options.Offloads != 0 {
		return fmt.Errorf("%w: offloads (%v)", ethernet.ErrNotSupported, d.options.Offloads)
	}
	var eventfds []int
	for range d.options.Queues {
		q, err := newQueue(d)
		if err != nil {
			return err
		}
		d.queues = append(d.queues, q)
		if d.options.Interrupts {
			eventfds = append(eventfds, q.eventfd)
		}
	}
	n, err := d.transport.Interrupts(eventfds)
	if err != nil {
		return err
	}
	for i, q := range d.queues[:n] {
		q.receiving.interrupt = i
	}
	d.info.Vectors = n
	return d.start(ctx)
}

// start resets the device and sets it up. It has been stopped.
func (d *device) start(ctx context.Context) error {
	offered, err := d.transport.Reset(ctx)
	if err != nil {
		return err
	}
	if err := d.agree(ctx, offered); err != nil {
		return err
	}
	if err := d.layOut(ctx); err != nil {
		return err
	}
	for _, q := range d.queues {
		for _, r := range []*ring{&q.receiving, &q.sending} {
			if err := d.enable(ctx, r); err != nil {
				return err
			}
		}
	}
	if d.control != nil {
		if err := d.enable(ctx, &d.control.ring); err != nil {
			return err
		}
	}
	if err := d.transport.Ready(ctx); err != nil {
		return err
	}
	for _, q := range d.queues {
		if !q.fill() {
			return fmt.Errorf("%w: the receive rings hold %d", ethernet.ErrNoBuffers, d.options.Queues*d.options.ReceiveDescriptors)
		}
	}
	if err := d.filters(ctx); err != nil {
		return err
	}
	for _, q := range d.queues {
		q.run()
	}
	return nil
}

// agree decides which features are used, and looks at the device's configuration.
func (d *device) agree(ctx context.Context, offered uint64) error {
	if offered&transport.FeatureVersion1 == 0 {
		return fmt.Errorf("%w: it is older than virtio 1.0 (features %#x)", ethernet.ErrNotSupported, offered)
	}
	if d.ring == ringPacked && offered&transport.FeaturePacked == 0 {
		return fmt.Errorf("%w: the device offers features %#x", errNoPacked, offered)
	}
	features := offered & wanted
	if d.ring != ringSplit {
		features |= offered & transport.FeaturePacked
	}
	if d.options.Queues > 1 {
		features |= offered & transport.FeatureMQ
	}
	if err := d.transport.Accept(ctx, features); err != nil {
		return err
	}
	d.features = features
	c, err := d.transport.Config(ctx)
	if err != nil {
		return err
	}
	if offered&transport.FeatureMTU != 0 && c.MTU != 0 && c.MTU < d.options.MTU {
		return fmt.Errorf("%w: an MTU of %d, the device's is %d", ethernet.ErrNotSupported, d.options.MTU, c.MTU)
	}
	if features&transport.FeatureMQ == 0 {
		c.Pairs = 1
	}
	if d.options.Queues > c.Pairs {
		return fmt.Errorf("%w: %d are asked for, the device serves %d", errQueues, d.options.Queues, c.Pairs)
	}
	d.state = c
	return d.address(ethernet.MAC(c.MAC))
}

// address finds the address of the port: the one that was asked for or set, or else the
// device's, or else a random one.
func (d *device) address(own ethernet.MAC) error {
	if d.features&transport.FeatureMAC != 0 && d.info.MAC == (ethernet.MAC{}) {
		if !own.IsStation() {
			return fmt.Errorf("%w: its address is %v, which cannot be a station's", ethernet.ErrProtocol, own)
		}
		d.info.MAC = own
	}
	if d.info.MAC == (ethernet.MAC{}) {
		d.info.MAC = mac.Random()
	}
	return nil
}

// layOut makes memory for all rings, or what was made before good again.
func (d *device) layOut(ctx context.Context) error {
	rings := make([]*ring, 0, 2*len(d.queues)+1)
	for i, q := range d.queues {
		q.receiving.ask(2*i, d.options.ReceiveDescriptors)
		q.sending.ask(2*i+1, d.options.SendDescriptors)
		rings = append(rings, &q.receiving, &q.sending)
	}
	d.control = nil
	if d.features&transport.FeatureControl != 0 {
		d.control = newControl(d)
		pairs := 1
		if d.features&transport.FeatureMQ != 0 {
			pairs = d.state.Pairs
		}
		d.control.ask(2*pairs, controlSize)
		rings = append(rings, &d.control.ring)
	}
	size := uint64(controlBuffer)
	for _, r := range rings {
		if err := d.size(ctx, r); err != nil {
			return err
		}
		r.at = size
		size += r.layout.Size
	}
	if d.memory == nil {
		first := d.queues[0]
		d.info.Options.ReceiveDescriptors, d.info.Options.SendDescriptors = first.receiving.options.Size, first.sending.options.Size
		var err error
		if d.memory, d.memoryBus, err = d.transport.Alloc(size); err != nil {
			return err
		}
		if d.poolBus, err = d.transport.MapPool(d.options.Pool); err != nil {
			return err
		}
		for _, q := range d.queues {
			// Where it is may have changed when it was mapped.
			q.buffers = d.options.Pool.Memory().Bytes()
		}
	}
	if size > uint64(len(d.memory)) {
		return fmt.Errorf("%w: its queues have grown", ethernet.ErrProtocol)
	}
	for _, r := range rings {
		if err := r.make(d.memory); err != nil {
			return err
		}
	}
	return nil
}

// size asks the device how large a ring may be, and makes it no larger.
func (d *device) size(ctx context.Context, r *ring) error {
	most, err := d.transport.QueueSize(ctx, r.options.Index)
	if err != nil {
		return err
	}
	o := &r.options
	o.EventIndex = d.features&transport.FeatureEventIndex != 0
	if d.features&transport.FeaturePacked != 0 {
		o.Format = virtqueue.Packed
	}
	if o.Size > most {
		o.Size = most
		if o.Format == virtqueue.Split && most&(most-1) != 0 {
			return fmt.Errorf("%w: queue %d has %d descriptors, which is no power of two", ethernet.ErrProtocol, o.Index, most)
		}
	}
	if r.layout, err = o.Layout(); err != nil {
		return fmt.Errorf("%w: queue %d: %w", ethernet.ErrProtocol, o.Index, err)
	}
	return nil
}

// enable makes the device use a ring.
func (d *device) enable(ctx context.Context, r *ring) error {
	bus := d.memoryBus + r.at
	bell, err := d.transport.Queue(ctx, r.options.Index, transport.Queue{
		Size: r.options.Size, Packed: r.options.Format == virtqueue.Packed,
		Descriptor: bus + r.layout.Descriptor, Driver: bus + r.layout.Driver, Device: bus + r.layout.Device,
		Interrupt: r.interrupt})
	if err != nil {
		return fmt.Errorf("queue %d: %w", r.options.Index, err)
	}
	r.bell = bell
	return nil
}

// pause keeps the data path off all rings.
func (d *device) pause() {
	for _, q := range d.queues {
		q.pause()
	}
}

// reclaim takes back the buffers of all rings. The device has been stopped.
func (d *device) reclaim() {
	for _, q := range d.queues {
		q.reclaimAll()
	}
}
