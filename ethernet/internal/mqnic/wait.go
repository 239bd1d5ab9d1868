package mqnic

import (
	"github.com/trapeze-nic/trapeze/ethernet/internal/function"
	"github.com/trapeze-nic/trapeze/internal/mmio"
)

// eventCount is the length of an event ring. There is an event for each time that a completion queue
// is armed, so that two are the most that wait.
const eventCount = 64

// events is an event ring. Its completion queue reports to it when it is armed.
type events struct {
	entries  []event
	consumer uint32
	at       uint64 // of its registers
	iova     uint64
	bell     function.Doorbell
}

// startEvents turns the event queue on. It raises the vector of the port's queue; without vectors
// nothing arms it.
func (q *queue) startEvents(r *registers) {
	e := &q.events
	clear(e.entries)
	e.consumer = 0
	r.setup(e.at, e.iova, len(e.entries), q.device.vector(q.Index))
}

// drain takes the events that have come, and returns how many are of other queues or of no known
// type. They are of no use but for having come.
func (e *events) drain(of uint32) (strange uint64) {
	size := uint32(len(e.entries))
	for range size {
		v := &e.entries[e.consumer&(size-1)]
		if !fresh(load(&v.phase), e.consumer, size) {
			break
		}
		mmio.FromDevice()
		if v.kind != 0 || uint32(v.source) != of {
			strange++
		}
		e.consumer++
	}
	return strange
}

func (q *queue) Arm() error {
	q.Lock.Lock()
	defer q.Lock.Unlock()
	if !q.Live {
		return nil
	}
	e, c := &q.events, &q.receive.completions
	q.strange.Add(e.drain(c.number))
	if err := e.bell.Ring(cmdConsumerArm | e.consumer&0xffff); err != nil {
		return err
	}
	return c.arm()
}

func (q *queue) Arrived() bool {
	c := &q.receive.completions
	size := uint32(len(c.entries))
	return fresh(load(&c.entries[c.consumer&(size-1)].phase), c.consumer, size)
}
