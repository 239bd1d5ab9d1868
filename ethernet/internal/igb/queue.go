package igb

import (
	"context"
	"os"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/ethernet/internal/function"
	"github.com/trapeze-nic/trapeze/ethernet/internal/port"
	"github.com/trapeze-nic/trapeze/internal/round"
)

// descriptorBytes is the size of a descriptor, headBytes that of the place for a head: a
// cache line of its own.
const (
	descriptorBytes = 16
	headBytes       = 64
)

// queue is a receive ring and a send ring.
type queue struct {
	port.Rings
	device   *device
	sends    ethernet.Flags // that may ask something of the device
	segments bool

	receive receiveRing
	send    sendRing
}

type receiveRing struct {
	descriptors []received
	buffers     []uint32 // by slot
	next        uint32   // the slot to look at, below the length
	unended     bool     // what comes belongs to a frame that is dropped
	hashes      bool
	sums        bool
	tail        function.Doorbell
	iova        uint64
}

type sendRing struct {
	descriptors []sent
	buffers     []uint32 // by slot; port.NoBuffer in those of contexts
	head        *uint32  // written by the device: the slot that it is at
	// Slots from clean to tail, both below the length, are the device's.
	clean, tail uint32
	context     sent // the last one given to the device
	bad         bool // head is where it cannot be
	bell        function.Doorbell
	iova, at    uint64 // of the ring and of head
}

// makeQueues allocates the rings of all queues in one piece of memory: for each queue its
// receive ring, its send ring and the word for its head.
func (d *device) makeQueues() error {
	c := d.options
	page := uint64(os.Getpagesize())
	receiveBytes := round.Up(uint64(c.ReceiveDescriptors)*descriptorBytes, page)
	sendBytes := round.Up(uint64(c.SendDescriptors)*descriptorBytes, page)
	each := receiveBytes + sendBytes
	memory, iova, err := d.f.Alloc(uint64(c.Queues) * (each + headBytes))
	if err != nil {
		return err
	}
	heads := uint64(c.Queues) * each
	for i := range c.Queues {
		at := uint64(i) * each
		head := heads + uint64(i)*headBytes
		q := &queue{
			device: d,
			receive: receiveRing{
				descriptors: receivedAt(memory[at:], c.ReceiveDescriptors), buffers: port.EmptySlots(c.ReceiveDescriptors),
				tail: d.regs.BAR().Doorbell(d.family.receiveBase(i) + ringTail), iova: iova + at,
				hashes: d.hashes(), sums: c.Offloads&ethernet.OffloadReceiveSum != 0,
			},
			send: sendRing{
				descriptors: sentAt(memory[at+receiveBytes:], c.SendDescriptors), buffers: port.EmptySlots(c.SendDescriptors),
				head: headAt(memory[head:]), bell: d.regs.BAR().Doorbell(d.family.sendBase(i) + ringTail),
				iova: iova + at + receiveBytes, at: iova + head,
			},
		}
		if c.Offloads&ethernet.OffloadVLAN != 0 {
			q.sends |= ethernet.VLANTagged
		}
		if c.Offloads&ethernet.OffloadSendSum != 0 {
			q.sends |= ethernet.SumIPv4 | ethernet.SumTCP | ethernet.SumUDP
		}
		q.segments = c.Offloads&ethernet.OffloadTSO != 0
		d.port.AddRings(q, &q.Rings, d.f)
		q.Slots-- // with the ring full, head and tail would be as with it empty
		d.queues = append(d.queues, q)
	}
	return nil
}

// start gives the receive ring buffers, and both rings to the device, which has been
// reset. The queue is paused.
func (q *queue) start(ctx context.Context) error {
	d, r := q.device, &q.device.regs
	ring := &q.receive
	ring.next, ring.unended = 0, false
	for i := range ring.descriptors {
		b, ok := q.Cache().Take()
		if !ok {
			return ethernet.ErrNoBuffers
		}
		ring.buffers[i] = b
		ring.descriptors[i] = received{low: q.Address(b, q.Headroom)}
	}
	base := d.family.receiveBase(q.Index)
	r.Write(base+ringBaseLow, uint32(ring.iova))
	r.Write(base+ringBaseHigh, uint32(ring.iova>>32))
	r.Write(base+ringBytes, uint32(len(ring.descriptors)*descriptorBytes))
	srrctl := uint32(d.options.Pool.Options().Size/1024) | srrctlOneBuffer
	if len(d.queues) > 1 {
		srrctl |= srrctlDrop
	}
	r.Write(base+ringSRRCTL, srrctl)
	if d.family.stripPerQueue && !d.family.virtual {
		r.Update(regDVMOLR+0x40*uint64(q.Index), stripCRC, 0)
	}
	r.Write(base+ringHead, 0)
	r.Write(base+ringControl, receiveThresholds|ringEnable)
	if err := q.waitRing(ctx, base, true); err != nil {
		return err
	}
	// Not before the ring is enabled: until then the device does not take it.
	if err := ring.tail.Ring(uint32(len(ring.descriptors) - 1)); err != nil {
		return err
	}
	if err := q.startSend(ctx); err != nil {
		return err
	}
	if q.Interrupts() {
		d.kind.route(d, q.Index, q.Index)
		// In microseconds, from bit 2 on.
		r.Write(regEITR+4*uint64(q.Index), min(uint32(d.options.Moderation.Microseconds()), 8191)<<2|eitrKeepCounter)
	}
	return r.Take()
}

// startSend gives an empty send ring to the device.
func (q *queue) startSend(ctx context.Context) error {
	r, ring := &q.device.regs, &q.send
	base := q.device.family.sendBase(q.Index)
	ring.clean, ring.tail, ring.context, *ring.head = 0, 0, sent{}, 0
	q.Contexts = 0
	ring.bad = false
	r.Write(base+ringBaseLow, uint32(ring.iova))
	r.Write(base+ringBaseHigh, uint32(ring.iova>>32))
	r.Write(base+ringBytes, uint32(len(ring.descriptors)*descriptorBytes))
	r.Write(base+ringHead, 0)
	r.Write(base+ringTail, 0)
	r.Update(base+ringTXCTL, 0, txctlRelaxedWriteBack)
	r.Write(base+ringWBHigh, uint32(ring.at>>32))
	r.Write(base+ringWBLow, uint32(ring.at)|headWriteBack)
	r.Write(base+ringControl, sendThresholds|ringEnable)
	return q.waitRing(ctx, base, true)
}

// waitRing waits until a ring is, or is not, the device's.
func (q *queue) waitRing(ctx context.Context, base uint64, on bool) error {
	r := &q.device.regs
	what := "switching a ring on"
	if !on {
		what = "switching a ring off"
	}
	return q.device.f.Wait(ctx, what, func() (bool, error) {
		r.status()
		return r.Read(base+ringControl)&ringEnable != 0 == on, r.Take()
	})
}

func (q *queue) Empty() {
	q.GiveBack(q.receive.buffers)
	q.drop()
}

// drop takes the buffers out of the send ring.
func (q *queue) drop() {
	ring := &q.send
	mask := uint32(len(ring.descriptors) - 1)
	for ; ring.clean != ring.tail; ring.clean = (ring.clean + 1) & mask {
		if b := ring.buffers[ring.clean]; b != port.NoBuffer {
			q.Cache().Give(b)
			q.Counters.Lost.Add(1)
		}
	}
}

// Arm implements port.RingDriver: it unmasks the queue's vector.
func (q *queue) Arm() error {
	d := q.device
	d.port.Mu.Lock()
	defer d.port.Mu.Unlock()
	if err := d.port.Failed(); err != nil {
		return err
	}
	d.regs.Write(regEIMS, 1<<q.Index)
	return d.regs.Take()
}

func (q *queue) Arrived() bool {
	return q.receive.descriptors[q.receive.next].status()&rxDone != 0
}
