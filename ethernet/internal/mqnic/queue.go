package mqnic

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"os"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/ethernet/internal/port"
)

// queue is a transmit and a receive queue with a completion queue each, and an event queue.
type queue struct {
	port.Rings
	device *device
	sums   bool
	hashes bool
	accept filter

	receive work
	send    work
	events  events
	freed   [64]uint32       // buffers of frames that were sent, while they are gathered
	strange ethernet.Counter // events that are not of this queue
}

// makeQueues allocates all rings in one piece of memory: for each queue its receive ring, its
// transmit ring, their completion rings, and its event ring. Queue i has completion queues 2i and
// 2i+1. It turns off what an earlier driver has left on.
func (d *device) makeQueues(ctx context.Context) error {
	c := d.options
	page := uint64(os.Getpagesize())
	bytes := func(n int, each uint64) uint64 { return (uint64(n)*each + page - 1) / page * page }
	sizes := [...]uint64{bytes(c.ReceiveDescriptors, 1<<descriptorLog), bytes(c.SendDescriptors, 1<<descriptorLog),
		bytes(2*c.ReceiveDescriptors, entryBytes), bytes(2*c.SendDescriptors, entryBytes), bytes(eventCount, entryBytes)}
	var total uint64
	for _, n := range sizes {
		total += n
	}
	memory, iova, err := d.f.Alloc(uint64(c.Queues) * total)
	if err != nil {
		return err
	}
	take := func(part int) ([]byte, uint64) {
		b, at := memory, iova
		memory, iova = memory[sizes[part]:], iova+sizes[part]
		return b, at
	}
	for i := range uint32(c.Queues) {
		q := &queue{device: d, accept: newFilter(d.port.Filter()),
			sums: c.Offloads&ethernet.OffloadReceiveSum != 0, hashes: d.hashes()}
		r, s := &q.receive, &q.send
		var b []byte
		b, r.iova = take(0)
		r.descriptors = descriptorsAt(b, c.ReceiveDescriptors)
		b, s.iova = take(1)
		s.descriptors = descriptorsAt(b, c.SendDescriptors)
		b, r.completions.iova = take(2)
		r.completions.entries = completionsAt(b, 2*c.ReceiveDescriptors)
		b, s.completions.iova = take(3)
		s.completions.entries = completionsAt(b, 2*c.SendDescriptors)
		b, q.events.iova = take(4)
		q.events.entries = eventsAt(b, eventCount)
		q.place(r, d.layout.rx, i, 2*i)
		q.place(s, d.layout.tx, i, 2*i+1)
		q.events.at = d.layout.eq.queue(i)
		q.events.bell = d.regs.BAR().Doorbell(q.events.at + queueCommand)
		d.port.AddRings(q, &q.Rings, d.f)
		d.queues = append(d.queues, q)
	}
	return d.quiet(ctx)
}

// place says which queues of the device a ring and its completions are.
func (q *queue) place(w *work, m manager, number, completions uint32) {
	n := len(w.descriptors)
	w.buffers, w.done = port.EmptySlots(n), make([]bool, n)
	w.number, w.at = number, m.queue(number)
	w.bell = q.device.regs.BAR().Doorbell(w.at + queueCommand)
	w.completions.number, w.completions.at = completions, q.device.layout.cq.queue(completions)
	w.completions.bell = q.device.regs.BAR().Doorbell(w.completions.at + queueCommand)
}

// start gives the rings to the device, which has them not. The queue is paused.
func (q *queue) start() error {
	r := &q.device.regs
	q.startEvents(r)
	for _, w := range []*work{&q.receive, &q.send} {
		w.reset()
		c := &w.completions
		r.setup(c.at, c.iova, len(c.entries), uint32(q.Index))
		r.setup(w.at, w.iova, len(w.descriptors), c.number)
	}
	ring := &q.receive
	for i := range ring.descriptors {
		b, ok := q.Cache().Take()
		if !ok {
			return ethernet.ErrNoBuffers
		}
		ring.buffers[i] = b
		ring.descriptors[i] = descriptor{uint64(q.Cache().Pool().Options().Size) << descLengthShift, q.Address(b, q.Headroom)}
	}
	if err := r.Err(); err != nil {
		return err
	}
	return ring.post(uint32(len(ring.descriptors)))
}

// setup turns a queue on that is off: base, size, what it reports to, and pointers.
func (r *registers) setup(at, iova uint64, size int, target uint32) {
	command := at + queueCommand
	r.Write(command, cmdOff)
	r.Write(at+queueBase, uint32(iova))
	r.Write(at+queueBase+4, uint32(iova>>32))
	r.Write(command, cmdSize|uint32(bits.TrailingZeros(uint(size))))
	r.Write(command, cmdTarget|target)
	r.Write(command, cmdProducer)
	r.Write(command, cmdConsumer)
	r.Write(command, cmdOn)
}

// stop takes the rings from the device, and waits until no transfer is under way. The transmit and
// receive queues end first, as they write completions, and these events.
func (q *queue) stop(ctx context.Context) error {
	d := q.device
	for _, w := range []*work{&q.receive, &q.send} {
		if err := d.off(ctx, fmt.Sprintf("switching queue %d off", w.number), w.at, queueActive); err != nil {
			return err
		}
	}
	for _, w := range []*work{&q.receive, &q.send} {
		if err := d.off(ctx, fmt.Sprintf("switching completion queue %d off", w.completions.number), w.completions.at, eventsActive); err != nil {
			return err
		}
	}
	return d.off(ctx, fmt.Sprintf("switching event queue %d off", q.Index), q.events.at, eventsActive)
}

// off turns a queue off and waits until it is not active.
func (d *device) off(ctx context.Context, what string, at uint64, active uint32) error {
	d.regs.Write(at+queueCommand, cmdOff)
	return d.cleared(ctx, what, at+queueCommand, active)
}

// cleared waits until the bits of a register are 0.
func (d *device) cleared(ctx context.Context, what string, register uint64, bits uint32) error {
	return d.f.Wait(ctx, what, func() (bool, error) {
		v := d.regs.Read(register)
		if v == allOnes {
			d.regs.alive()
		}
		return v&bits == 0, d.regs.Take()
	})
}

func (q *queue) Empty() {
	q.GiveBack(q.receive.buffers)
	q.Counters.Lost.Add(q.GiveBack(q.send.buffers))
	q.receive.drop()
	q.send.drop()
}

func (q *queue) Fault() error { return errors.Join(q.send.fault, q.receive.fault) }

func (q *queue) Held() uint32 { return q.send.held() }

// Renew implements port.Ring: it takes all rings of the queue from the device, and gives it empty
// ones.
func (q *queue) Renew(ctx context.Context) error {
	q.Pause()
	d := q.device
	if err := q.stop(ctx); err != nil {
		return err
	}
	q.Empty()
	if err := q.start(); err != nil {
		return err
	}
	d.schedule(q.send.number, channelOn)
	if err := d.regs.Take(); err != nil {
		return err
	}
	q.Run()
	return nil
}
