package port

import (
	"context"
	"errors"
	"time"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/ethernet/internal/function"
	"github.com/trapeze-nic/trapeze/internal/hotlock"
	"github.com/trapeze-nic/trapeze/vfio"
)

// NoBuffer stands in a slot of a ring that has none.
const NoBuffer = ^uint32(0)

// RingDriver has the steps of Rings that differ between drivers.
type RingDriver interface {
	Ring
	// Arrived reports whether a frame has arrived. The lock is held, and the rings are Live.
	Arrived() bool
	// Take takes frames out of the receive ring and puts empty buffers in their place. The lock is held,
	// and the rings are Live.
	Take(frames []ethernet.Frame) int
	// Put writes descriptors for frames, as far as there is room, and rings. The lock is held, and the
	// rings are Live.
	Put(frames []ethernet.Frame) (int, error)
	// Arm has the next frame raise the interrupt of the queue.
	Arm() error
	// Reclaim takes back the buffers of frames that have been sent. The lock is held.
	Reclaim()
	// Fault returns what the device has done against its data sheet. The lock is held.
	Fault() error
	// Held returns how many send descriptors the device has. The lock is held.
	Held() uint32
	// Empty takes all buffers out of the rings, which the device has not any more.
	Empty()
}

// Rings is the part of a queue with rings in memory, of a function of PCI. A driver embeds it.
type Rings struct {
	Lock hotlock.Mutex // for all but what does not change; held during a burst
	Queue

	// What frames are checked against.
	MaxFrame, Buffers, Stride uint32
	Headroom                  uint16
	// Slots is how many descriptors of the send ring the device can have: all, if the driver says nothing else.
	Slots uint32
	// Contexts of the descriptors that it has are no frames.
	Contexts uint32

	pool uint64 // bus address of the first buffer

	driver   RingDriver
	function *function.Function
	event    *vfio.Eventfd // nil: Wait polls
}

// SetupRings brings a function to work whose queues have rings in memory. The device can reach the
// port's pool when makeQueues is called, which calls AddRings for each. It does DMA when start is
// called. info learns how many interrupt vectors there are.
func (p *Port) SetupRings(f *function.Function, info *ethernet.Info, makeQueues, start func() error) (err error) {
	if p.pool, err = f.MapPool(p.options.Pool); err != nil {
		return err
	}
	if err := makeQueues(); err != nil {
		return err
	}
	if info.Vectors, err = p.vectors(f); err != nil {
		return err
	}
	if err := f.Master(); err != nil {
		return err
	}
	if err := start(); err != nil {
		return err
	}
	f.Watch(p.Fail)
	return nil
}

// AddRings makes a queue, which embeds q, the next one of the port.
func (p *Port) AddRings(d RingDriver, q *Rings, f *function.Function) {
	o := p.options.Pool.Options()
	q.MaxFrame, q.Buffers, q.Stride = uint32(p.options.MaxFrame()), uint32(o.Buffers), uint32(p.options.Pool.Stride())
	q.Headroom, q.pool, q.driver, q.function = uint16(o.Headroom), p.pool, d, f
	q.Slots = uint32(p.options.SendDescriptors)
	p.Add(d, &q.Queue)
	p.rings = append(p.rings, q)
}

// vectors connects an interrupt vector for each queue with rings, if that is asked for and
// possible, and returns how many there are.
func (p *Port) vectors(f *function.Function) (int, error) {
	if !p.options.Interrupts {
		return 0, nil
	}
	list, err := f.Vectors(len(p.rings))
	if err != nil {
		return 0, err
	}
	for i := range list {
		p.rings[i].event = list[i]
	}
	return len(list), nil
}

// RestartRings has stop take all rings from the device, and start give it empty ones. What has been
// sent is not lost.
func (p *Port) RestartRings(stop, start func() error) error {
	for _, q := range p.rings {
		q.Pause()
		q.Lock.Lock()
		q.driver.Reclaim()
		q.Lock.Unlock()
	}
	if err := stop(); err != nil {
		return err
	}
	for _, q := range p.rings {
		q.driver.Empty()
	}
	return start()
}

// ReleaseRings closes the function of a device, which stop keeps from memory. Buffers that the
// device may still write stay where they are.
func (p *Port) ReleaseRings(f *function.Function, stop func(ctx context.Context) error) error {
	for _, q := range p.rings {
		q.Pause()
	}
	err := f.Close(func() error {
		ctx, cancel := p.Limited()
		defer cancel()
		return stop(ctx)
	})
	if !errors.Is(err, ethernet.ErrNotStopped) {
		for _, q := range p.rings {
			q.driver.Empty()
			q.Cache().Close()
		}
	}
	return err
}

// Receive implements ethernet.Queue.
func (q *Rings) Receive(frames []ethernet.Frame) (n int, err error) {
	if err := q.Port.Failed(); err != nil {
		return 0, err
	}
	q.Lock.Lock()
	if q.Live {
		n = q.driver.Take(frames)
	}
	q.Lock.Unlock()
	return n, nil
}

// Send implements ethernet.Queue.
func (q *Rings) Send(frames []ethernet.Frame) (int, error) {
	if err := q.Port.Failed(); err != nil {
		return 0, err
	}
	q.Lock.Lock()
	defer q.Lock.Unlock()
	if !q.Live || len(frames) == 0 {
		return 0, nil
	}
	// As long as less than a quarter is in use, buffers can wait.
	if used := q.driver.Held(); used >= q.Slots/4 || q.Slots-used < uint32(len(frames)) {
		if q.driver.Reclaim(); !q.Live {
			return 0, nil
		}
	}
	return q.driver.Put(frames)
}

// Unsent implements ethernet.Queue. Of rings that are not Live the device has no frames: they are lost, and
// the rings are made anew.
func (q *Rings) Unsent() (int, error) {
	if err := q.Port.Failed(); err != nil {
		return 0, err
	}
	q.Lock.Lock()
	defer q.Lock.Unlock()
	if !q.Live {
		return 0, nil
	}
	q.driver.Reclaim()
	return int(q.driver.Held() - q.Contexts), nil
}

// Address returns the bus address of a place in a buffer.
func (q *Rings) Address(buffer uint32, offset uint16) uint64 {
	return q.pool + uint64(buffer)*uint64(q.Stride) + uint64(offset)
}

// EmptySlots returns n slots of a ring without buffers.
func EmptySlots(n int) []uint32 {
	s := make([]uint32, n)
	for i := range s {
		s[i] = NoBuffer
	}
	return s
}

// GiveBack takes the buffers out of slots, and returns how many there were.
func (q *Rings) GiveBack(slots []uint32) (n uint64) {
	for i, b := range slots {
		if b != NoBuffer {
			q.Cache().Give(b)
			slots[i] = NoBuffer
			n++
		}
	}
	return n
}

// Pause keeps the data path off the rings.
func (q *Rings) Pause() {
	q.Lock.Lock()
	q.Live = false
	q.Lock.Unlock()
}

// Run lets the data path use the rings.
func (q *Rings) Run() {
	q.Lock.Lock()
	q.Live = true
	q.Moved()
	q.Lock.Unlock()
}

// Interrupts reports whether the queue has a vector.
func (q *Rings) Interrupts() bool { return q.event != nil }

// Ready implements Ring. A device that has to be stepped is.
func (q *Rings) Ready() bool {
	q.Lock.Lock()
	arrived := q.arrived()
	q.Lock.Unlock()
	if !arrived {
		q.function.Poll()
	}
	return arrived
}

func (q *Rings) arrived() bool { return q.Live && q.driver.Arrived() }

// Sleep implements Ring. A vector that is armed while a frame waits fires at once, so that no frame
// is overlooked between the last look and arming.
func (q *Rings) Sleep(ctx context.Context) (bool, error) {
	if q.event == nil {
		return false, nil
	}
	if err := q.driver.Arm(); err != nil || q.Ready() {
		return true, err
	}
	return true, q.Await(ctx, q.event, &q.Lock, q.arrived)
}

// Trouble implements Ring. Without a link frames may stand still.
func (q *Rings) Trouble(now time.Time, up bool) error {
	q.Lock.Lock()
	defer q.Lock.Unlock()
	if q.Live {
		q.driver.Reclaim()
	}
	if err := q.driver.Fault(); err != nil {
		return err
	}
	switch {
	case !q.Live:
		return nil
	case !up || q.driver.Held() == 0:
		q.Moved()
		return nil
	}
	return q.Stands(now)
}
