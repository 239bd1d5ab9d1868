package igb

import (
	"context"
	"os"
	"runtime"
	"time"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/ethernet/internal/function"
	"github.com/trapeze-nic/trapeze/internal/hotlock"
	"github.com/trapeze-nic/trapeze/vfio"
)

// descriptorBytes is the size of a descriptor, headBytes that of the place for a head: a
// cache line of its own.
const (
	descriptorBytes = 16
	headBytes       = 64
)

// noBuffer stands in a slot that has none.
const noBuffer = ^uint32(0)

// queue is a receive ring and a send ring.
type queue struct {
	lock   hotlock.Mutex // for all but what does not change; held during a burst
	port   *port
	index  int
	closed bool
	cache  *ethernet.Cache
	event  *vfio.Eventfd // nil: Wait polls

	// What frames are checked against.
	maxFrame, buffers, stride uint32
	headroom                  uint16
	sends                     ethernet.Flags // that may ask something of the device
	segments                  bool
	pool                      uint64

	receive receiveRing
	send    sendRing

	counters counters
	idle     int // interrupts without a frame, in a row
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
	buffers     []uint32 // by slot; noBuffer in those of contexts
	head        *uint32  // written by the device: the slot that it is at
	// Slots from clean to tail, both below the length, are the device's.
	clean, tail uint32
	contexts    uint32        // of them that are contexts
	context     sent          // the last one given to the device
	since       time.Duration // when the ring was found full, on the port's clock; 0: it was not
	bad         bool          // head is where it cannot be
	bell        function.Doorbell
	iova, at    uint64 // of the ring and of head
}

// counters are a queue's, one writer each: who holds the lock.
type counters struct {
	receivedFrames, receivedBytes, sentFrames, sentBytes ethernet.Counter
	receiveErrors, badLengths, unended, noBuffers        ethernet.Counter
	lost, restarts, interrupts                           ethernet.Counter
}

func (c *counters) load() ethernet.QueueCounters {
	return ethernet.QueueCounters{
		ReceivedFrames: c.receivedFrames.Load(), ReceivedBytes: c.receivedBytes.Load(),
		SentFrames: c.sentFrames.Load(), SentBytes: c.sentBytes.Load(),
		ReceiveErrors: c.receiveErrors.Load(), BadLengths: c.badLengths.Load(), Unended: c.unended.Load(),
		NoBuffers: c.noBuffers.Load(), Lost: c.lost.Load(), Restarts: c.restarts.Load(), Interrupts: c.interrupts.Load(),
	}
}

// makeQueues allocates the rings of all queues in one piece of memory: for each queue its
// receive ring, its send ring and the word for its head.
func (p *port) makeQueues() error {
	c, pool := &p.config, p.config.Pool.Config()
	page := uint64(os.Getpagesize())
	receiveBytes := roundUp(uint64(c.ReceiveDescriptors)*descriptorBytes, page)
	sendBytes := roundUp(uint64(c.SendDescriptors)*descriptorBytes, page)
	each := receiveBytes + sendBytes
	memory, iova, err := p.f.Alloc(uint64(c.Queues) * (each + headBytes))
	if err != nil {
		return err
	}
	heads := uint64(c.Queues) * each
	for i := range c.Queues {
		at := uint64(i) * each
		head := heads + uint64(i)*headBytes
		q := &queue{
			port: p, index: i, cache: c.Pool.NewCache(),
			maxFrame: uint32(c.MaxFrame()), buffers: uint32(pool.Buffers), stride: uint32(c.Pool.Stride()),
			headroom: uint16(pool.Headroom), pool: p.pool,
			receive: receiveRing{
				descriptors: receivedAt(memory[at:], c.ReceiveDescriptors), buffers: emptySlots(c.ReceiveDescriptors),
				tail: p.regs.bar.Doorbell(p.family.receiveBase(i) + ringTail), iova: iova + at,
				sums: c.Offloads&ethernet.OffloadReceiveSum != 0,
			},
			send: sendRing{
				descriptors: sentAt(memory[at+receiveBytes:], c.SendDescriptors), buffers: emptySlots(c.SendDescriptors),
				head: headAt(memory[head:]), bell: p.regs.bar.Doorbell(p.family.sendBase(i) + ringTail),
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
		p.queues = append(p.queues, q)
	}
	for _, q := range p.queues {
		q.receive.hashes = p.hashes()
	}
	return nil
}

func roundUp(n, to uint64) uint64 { return (n + to - 1) / to * to }

func emptySlots(n int) []uint32 {
	s := make([]uint32, n)
	for i := range s {
		s[i] = noBuffer
	}
	return s
}

// start gives the receive ring buffers, and both rings to the device, which has been
// reset. The lock is held, or nobody has the queue yet.
func (q *queue) start(ctx context.Context) error {
	p, r := q.port, &q.port.regs
	ring := &q.receive
	ring.next, ring.unended = 0, false
	for i := range ring.descriptors {
		b, ok := q.cache.Take()
		if !ok {
			return ethernet.ErrNoBuffers
		}
		ring.buffers[i] = b
		ring.descriptors[i] = received{low: q.address(b, q.headroom)}
	}
	base := p.family.receiveBase(q.index)
	r.write(base+ringBaseLow, uint32(ring.iova))
	r.write(base+ringBaseHigh, uint32(ring.iova>>32))
	r.write(base+ringBytes, uint32(len(ring.descriptors)*descriptorBytes))
	srrctl := uint32(p.config.Pool.Config().Size/1024) | srrctlOneBuffer
	if len(p.queues) > 1 {
		srrctl |= srrctlDrop
	}
	r.write(base+ringSRRCTL, srrctl)
	if p.family.stripPerQueue && !p.family.virtual {
		r.update(regDVMOLR+0x40*uint64(q.index), stripCRC, 0)
	}
	r.write(base+ringHead, 0)
	r.write(base+ringControl, receiveThresholds|ringEnable)
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
	if q.event != nil {
		p.kind.route(p, q.index, q.index)
		// In microseconds, from bit 2 on.
		r.write(regEITR+4*uint64(q.index), min(uint32(p.config.Moderation.Microseconds()), 8191)<<2|eitrKeepCounter)
	}
	return r.take()
}

// startSend gives an empty send ring to the device.
func (q *queue) startSend(ctx context.Context) error {
	r, ring := &q.port.regs, &q.send
	base := q.port.family.sendBase(q.index)
	ring.clean, ring.tail, ring.contexts, ring.context, *ring.head = 0, 0, 0, sent{}, 0
	ring.since, ring.bad = 0, false
	r.write(base+ringBaseLow, uint32(ring.iova))
	r.write(base+ringBaseHigh, uint32(ring.iova>>32))
	r.write(base+ringBytes, uint32(len(ring.descriptors)*descriptorBytes))
	r.write(base+ringHead, 0)
	r.write(base+ringTail, 0)
	r.update(base+ringTXCTL, 0, txctlRelaxedWriteBack)
	r.write(base+ringWBHigh, uint32(ring.at>>32))
	r.write(base+ringWBLow, uint32(ring.at)|headWriteBack)
	r.write(base+ringControl, sendThresholds|ringEnable)
	return q.waitRing(ctx, base, true)
}

// waitRing waits until a ring is, or is not, the device's.
func (q *queue) waitRing(ctx context.Context, base uint64, on bool) error {
	r := &q.port.regs
	what := "switching a ring on"
	if !on {
		what = "switching a ring off"
	}
	return q.port.f.Wait(ctx, what, func() (bool, error) {
		r.status()
		return r.read(base+ringControl)&ringEnable != 0 == on, r.take()
	})
}

// empty takes all buffers out of the rings, which the device has not any more.
func (q *queue) empty() {
	for i, b := range q.receive.buffers {
		if b != noBuffer {
			q.cache.Give(b)
			q.receive.buffers[i] = noBuffer
		}
	}
	q.drop()
}

// drop takes the buffers out of the send ring.
func (q *queue) drop() {
	ring := &q.send
	mask := uint32(len(ring.descriptors) - 1)
	for ; ring.clean != ring.tail; ring.clean = (ring.clean + 1) & mask {
		if b := ring.buffers[ring.clean]; b != noBuffer {
			q.cache.Give(b)
			q.counters.lost.Add(1)
		}
	}
}

// address returns the bus address of a place in a buffer.
func (q *queue) address(buffer uint32, offset uint16) uint64 {
	return q.pool + uint64(buffer)*uint64(q.stride) + uint64(offset)
}

// down says why the queue cannot be used, or nil. The lock is held.
func (q *queue) down() error {
	if q.closed {
		return ethernet.ErrClosed
	}
	return q.port.f.Failed()
}

// Cache implements ethernet.Queue.
func (q *queue) Cache() *ethernet.Cache { return q.cache }

// pollPause is how long Wait sleeps between two looks at a ring that stays empty.
const pollPause = 50 * time.Microsecond

// Wait implements ethernet.Queue.
func (q *queue) Wait(ctx context.Context) error {
	if ready, err := q.ready(); ready || err != nil {
		return err
	}
	if q.event != nil {
		return q.sleep(ctx)
	}
	end := time.Now().Add(ethernet.WaitLimit)
	for i := 0; ; i++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		if ready, err := q.ready(); ready || err != nil || time.Now().After(end) {
			return err
		}
		switch {
		case q.port.f.Poll():
		case i < 100:
			runtime.Gosched()
		default:
			time.Sleep(pollPause)
		}
	}
}

// mostIdle is how many interrupts may come without a frame before they are not listened to
// for as long as between two looks without interrupts.
const mostIdle = 16

// sleep waits for an interrupt, or until WaitLimit is over, and looks after the device
// then.
func (q *queue) sleep(ctx context.Context) error {
	if err := q.arm(); err != nil {
		return err
	}
	if ready, err := q.ready(); ready || err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, ethernet.WaitLimit)
	defer cancel()
	err := q.event.Wait(limited)
	switch {
	case err == nil:
		q.interrupted()
	case ctx.Err() != nil:
		return ctx.Err()
	case limited.Err() != nil:
		_, err = q.port.Link() // finds out if the device is gone
	}
	return err
}

// interrupted counts an interrupt, and waits a while if too many have brought nothing.
func (q *queue) interrupted() {
	q.lock.Lock()
	q.counters.interrupts.Add(1)
	q.idle++
	if q.down() == nil && q.receive.descriptors[q.receive.next].status()&rxDone != 0 {
		q.idle = 0
	}
	storm := q.idle > mostIdle
	q.lock.Unlock()
	if storm {
		time.Sleep(pollPause)
	}
}

// arm unmasks the queue's vector.
func (q *queue) arm() error {
	p := q.port
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return ethernet.ErrClosed
	}
	p.regs.write(regEIMS, 1<<q.index)
	return p.regs.take()
}

// ready says whether a frame has arrived.
func (q *queue) ready() (bool, error) {
	q.lock.Lock()
	defer q.lock.Unlock()
	if err := q.down(); err != nil {
		return false, err
	}
	return q.receive.descriptors[q.receive.next].status()&rxDone != 0, nil
}
