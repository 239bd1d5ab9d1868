package virtio

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/ethernet/virtio/internal/transport"
	"github.com/trapeze-nic/trapeze/ethernet/virtio/internal/virtqueue"
)

// wanted are the features that are used wherever the device has them. Checksums and long
// segments of others are not among them: received frames are whole, and checked by who
// wants to know.
const wanted = transport.FeatureVersion1 | transport.FeatureAccessPlatform | transport.FeatureOrderPlatform |
	transport.FeatureEventIndex | transport.FeatureQueueReset | transport.FeatureMAC | transport.FeatureStatus |
	transport.FeatureSpeed | transport.FeatureMergeable | transport.FeatureControl | transport.FeatureControlReceive |
	transport.FeatureControlMAC

// setUp makes everything for a device that is new, and starts it.
func (p *port) setUp(ctx context.Context) error {
	if p.config.Offloads != 0 {
		return fmt.Errorf("%w: offloads (%v)", ethernet.ErrNotSupported, p.config.Offloads)
	}
	var eventfds []int
	for i := range p.config.Queues {
		q, err := newQueue(p, i)
		if err != nil {
			return err
		}
		p.queues = append(p.queues, q)
		if p.config.Interrupts {
			eventfds = append(eventfds, q.eventfd)
		}
	}
	n, err := p.device.Interrupts(eventfds)
	if err != nil {
		return err
	}
	for i, q := range p.queues[:n] {
		q.receiving.interrupt = i
	}
	p.info.Vectors = n
	return p.start(ctx)
}

// start resets the device and sets it up. It has been stopped.
func (p *port) start(ctx context.Context) error {
	offered, err := p.device.Reset(ctx)
	if err != nil {
		return err
	}
	if err := p.agree(ctx, offered); err != nil {
		return err
	}
	if err := p.layOut(ctx); err != nil {
		return err
	}
	for _, q := range p.queues {
		for _, r := range []*ring{&q.receiving, &q.sending} {
			if err := p.enable(ctx, r); err != nil {
				return err
			}
		}
	}
	if p.control != nil {
		if err := p.enable(ctx, &p.control.ring); err != nil {
			return err
		}
	}
	if err := p.device.Ready(ctx); err != nil {
		return err
	}
	for _, q := range p.queues {
		if !q.fill() {
			return fmt.Errorf("%w: the receive rings hold %d", ethernet.ErrNoBuffers, p.config.Queues*p.config.ReceiveDescriptors)
		}
	}
	if err := p.filters(ctx); err != nil {
		return err
	}
	for _, q := range p.queues {
		q.run()
	}
	return nil
}

// agree decides which features are used, and looks at the device's configuration.
func (p *port) agree(ctx context.Context, offered uint64) error {
	if offered&transport.FeatureVersion1 == 0 {
		return fmt.Errorf("%w: it is older than virtio 1.0 (features %#x)", ethernet.ErrNotSupported, offered)
	}
	if p.ring == ringPacked && offered&transport.FeaturePacked == 0 {
		return fmt.Errorf("%w: the device offers features %#x", errNoPacked, offered)
	}
	features := offered & wanted
	if p.ring != ringSplit {
		features |= offered & transport.FeaturePacked
	}
	if p.config.Queues > 1 {
		features |= offered & transport.FeatureMQ
	}
	if err := p.device.Accept(ctx, features); err != nil {
		return err
	}
	p.features = features
	c, err := p.device.Config(ctx)
	if err != nil {
		return err
	}
	if offered&transport.FeatureMTU != 0 && c.MTU != 0 && c.MTU < p.config.MTU {
		return fmt.Errorf("%w: an MTU of %d, the device's is %d", ethernet.ErrNotSupported, p.config.MTU, c.MTU)
	}
	if features&transport.FeatureMQ == 0 {
		c.Pairs = 1
	}
	if p.config.Queues > c.Pairs {
		return fmt.Errorf("%w: %d are asked for, the device serves %d", errQueues, p.config.Queues, c.Pairs)
	}
	p.state = c
	return p.address(ethernet.MAC(c.MAC))
}

// address finds the address of the port: the one that was asked for or set, or else the
// device's, or else a random one.
func (p *port) address(own ethernet.MAC) error {
	if p.features&transport.FeatureMAC != 0 && p.info.MAC == (ethernet.MAC{}) {
		if !own.IsStation() {
			return fmt.Errorf("%w: its address is %v, which cannot be a station's", ethernet.ErrProtocol, own)
		}
		p.info.MAC = own
	}
	if p.info.MAC == (ethernet.MAC{}) {
		_, _ = rand.Read(p.info.MAC[:]) // it does not fail
		// Local, and a station's (IEEE 802, 8.2).
		p.info.MAC[0] = p.info.MAC[0]&^1 | 2
	}
	if p.mac == (ethernet.MAC{}) {
		p.mac = p.info.MAC
	}
	return nil
}

// layOut makes memory for all rings, or what was made before good again.
func (p *port) layOut(ctx context.Context) error {
	rings := make([]*ring, 0, 2*len(p.queues)+1)
	for i, q := range p.queues {
		q.receiving.ask(2*i, p.config.ReceiveDescriptors)
		q.sending.ask(2*i+1, p.config.SendDescriptors)
		rings = append(rings, &q.receiving, &q.sending)
	}
	p.control = nil
	if p.features&transport.FeatureControl != 0 {
		p.control = newControl(p)
		pairs := 1
		if p.features&transport.FeatureMQ != 0 {
			pairs = p.state.Pairs
		}
		p.control.ask(2*pairs, controlSize)
		rings = append(rings, &p.control.ring)
	}
	size := uint64(controlBuffer)
	for _, r := range rings {
		if err := p.size(ctx, r); err != nil {
			return err
		}
		r.at = size
		size += r.layout.Size
	}
	if p.memory == nil {
		first := p.queues[0]
		p.info.Config.ReceiveDescriptors, p.info.Config.SendDescriptors = first.receiving.options.Size, first.sending.options.Size
		var err error
		if p.memory, p.memoryBus, err = p.device.Alloc(size); err != nil {
			return err
		}
		if p.poolBus, err = p.device.MapPool(p.pool); err != nil {
			return err
		}
		for _, q := range p.queues {
			// Where it is may have changed when it was mapped.
			q.buffers = p.pool.Memory().Bytes()
		}
	}
	if size > uint64(len(p.memory)) {
		return fmt.Errorf("%w: its queues have grown", ethernet.ErrProtocol)
	}
	for _, r := range rings {
		if err := r.make(p.memory); err != nil {
			return err
		}
	}
	return nil
}

// size asks the device how large a ring may be, and makes it no larger.
func (p *port) size(ctx context.Context, r *ring) error {
	most, err := p.device.QueueSize(ctx, r.options.Index)
	if err != nil {
		return err
	}
	o := &r.options
	o.EventIndex = p.features&transport.FeatureEventIndex != 0
	if p.features&transport.FeaturePacked != 0 {
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

// enable has the device use a ring.
func (p *port) enable(ctx context.Context, r *ring) error {
	bus := p.memoryBus + r.at
	bell, err := p.device.Queue(ctx, r.options.Index, transport.Queue{
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
func (p *port) pause() {
	for _, q := range p.queues {
		q.pause()
	}
}

// reclaim takes back the buffers of all rings. The device has been stopped.
func (p *port) reclaim() {
	for _, q := range p.queues {
		q.reclaimAll()
	}
}
