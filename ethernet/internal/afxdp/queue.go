package afxdp

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/ethernet/internal/afxdp/internal/xskring"
	"github.com/trapeze-nic/trapeze/ethernet/internal/port"
)

// burst is the number of frames that are taken from a ring at a time.
const burst = 64

// queue is a socket.
type queue struct {
	port.Queue
	device   *device
	maxFrame int

	// lock is held by the user of the socket. It is not a hotlock, as calls of the kernel are
	// made with it.
	lock   sync.Mutex
	socket *socket // nil while there is none
	// unended: the next buffer goes on with a frame, whose front is that, unless it is
	// being dropped.
	unended, dropping bool
	front             ethernet.Frame
	taken             [burst]xskring.Received
	done              [burst]uint32

	sleeping sync.Mutex // held by the goroutine that waits for the socket
	// hasArrived is arrived, made once.
	hasArrived func(uintptr) bool
}

func newQueue(d *device) *queue {
	q := &queue{device: d, maxFrame: d.config.MaxFrame()}
	q.hasArrived = q.arrived
	d.port.Add(q, &q.Queue)
	return q
}

// start makes a socket for the queue, with buffers to receive to. There is none, so that
// the data path leaves the cache alone but for its user.
func (q *queue) start() error {
	s, err := newSocket(q.device)
	if err != nil {
		return err
	}
	q.fill(s.rings)
	if s.rings.Lent() == 0 {
		err = fmt.Errorf("%w: the receive rings hold %d", ethernet.ErrNoBuffers, q.device.config.Queues*q.device.config.ReceiveDescriptors)
	} else {
		s.rings.PublishFill()
		err = s.bind(q.device, q.number())
	}
	if err != nil {
		err = errors.Join(err, s.close())
		s.rings.Reclaim(q.Cache().Give)
		return err
	}
	// Before others use the queue, and its rings.
	if have, want := s.rings.Lent(), q.device.config.ReceiveDescriptors; have < want {
		q.device.port.Log().Warn(fmt.Sprintf("queue %d begins with %d of %d buffers to receive to: the pool has no more; a larger one loses no frames",
			q.number(), have, want))
	}
	q.lock.Lock()
	defer q.lock.Unlock()
	q.socket, q.Full, q.Live = s, false, true
	q.Moved()
	return nil
}

// fill lends the kernel as many buffers to receive to as there should be, as far as there
// are some.
func (q *queue) fill(rings *xskring.Rings) {
	for rings.Lent() < q.device.config.ReceiveDescriptors {
		b, ok := q.Cache().Take()
		if !ok {
			return
		}
		rings.Lend(b)
	}
}

// stop closes the socket, and takes back the buffers that the kernel had, once no process
// writes to them any more.
func (q *queue) stop() error {
	q.lock.Lock()
	s := q.socket
	q.Live, q.socket = false, nil
	if s != nil {
		q.complete(s) // what has been sent is not lost
	}
	q.lock.Unlock()
	if s == nil {
		return nil
	}
	if s.alarm != nil {
		s.alarm.stop() // who sleeps has the socket open
	}
	q.sleeping.Lock()
	err := s.close()
	q.sleeping.Unlock()
	if s.zero {
		if qerr := q.device.quiesce(q.number()); qerr != nil {
			return errors.Join(err, qerr)
		}
	}
	q.lock.Lock()
	defer q.lock.Unlock()
	q.Counters.Lost.Add(uint64(s.rings.Unsent()))
	s.rings.Reclaim(q.Cache().Give)
	if q.unended && !q.dropping {
		q.Cache().Give(q.front.Buffer)
	}
	q.unended = false
	return err
}

// number is that of the interface's queue.
func (q *queue) number() int { return q.device.options.First + q.Index }

// Receive takes frames that have arrived.
func (q *queue) Receive(frames []ethernet.Frame) (int, error) {
	if err := q.Port.Failed(); err != nil {
		return 0, err
	}
	q.lock.Lock()
	defer q.lock.Unlock()
	if !q.Live {
		return 0, nil
	}
	rings := q.socket.rings
	q.fill(rings) // the pool may have had too few before
	n := 0
	for n < len(frames) && rings.Pending() {
		empty := q.Cache().TakeAll(min(len(frames)-n, burst))
		if len(empty) == 0 {
			q.Counters.NoBuffers.Add(1)
			break
		}
		got, used := rings.Take(q.taken[:len(empty)]), 0
		for i := range q.taken[:got] {
			keeps, ends := q.accept(&q.taken[i])
			if keeps {
				rings.Lend(empty[used])
				used++
			} else {
				rings.Lend(q.taken[i].Buffer)
			}
			if ends {
				frames[n] = q.front
				n++
			}
		}
		q.Cache().GiveAll(empty[used:])
		if got < len(empty) {
			break
		}
	}
	rings.PublishFill()
	q.Counters.ReceivedFrames.Add(uint64(n))
	if rings.Violation() != nil {
		q.Broken()
	} else {
		q.wake(false)
	}
	return n, nil
}

// accept takes what has arrived in a buffer. It reports whether the frame keeps the buffer,
// and whether the front is a whole frame now. What makes no frame is counted.
func (q *queue) accept(r *xskring.Received) (keeps, ends bool) {
	first := !q.unended
	q.unended = r.Continued
	switch {
	case first && r.Continued && q.device.geometry.parts == 1: // no such frames were asked for
		q.Counters.Unended.Add(1)
		q.dropping = true
		return false, false
	case first && (r.Length < ethernet.HeaderSize || int(r.Length) > q.maxFrame):
		q.Counters.BadLengths.Add(1)
		q.dropping = true
		return false, false
	case first:
		q.dropping = false
		q.front = ethernet.Frame{Buffer: r.Buffer, Offset: uint16(r.Offset), Length: uint16(r.Length)}
	case q.dropping:
		return false, false
	case !q.gather(r):
		q.Counters.BadLengths.Add(1)
		q.Cache().Give(q.front.Buffer)
		q.dropping = true
		return false, false
	}
	if !r.Continued {
		q.Counters.ReceivedBytes.Add(uint64(q.front.Length))
	}
	return first, !r.Continued
}

// gather copies a part of a frame behind its front, and reports whether there is room.
func (q *queue) gather(r *xskring.Received) bool {
	front, part := q.Cache().Pool().Buffer(q.front.Buffer), q.Cache().Pool().Buffer(r.Buffer)
	end := int(q.front.Offset) + int(q.front.Length)
	if r.Length == 0 || int(q.front.Length)+int(r.Length) > q.maxFrame || end+int(r.Length) > len(front) {
		return false
	}
	copy(front[end:], part[r.Offset:][:r.Length])
	q.front.Length += uint16(r.Length)
	return true
}

// Send sends frames by the kernel.
func (q *queue) Send(frames []ethernet.Frame) (int, error) {
	if err := q.Port.Failed(); err != nil {
		return 0, err
	}
	q.lock.Lock()
	defer q.lock.Unlock()
	if !q.Live {
		return 0, nil
	}
	rings := q.socket.rings
	if rings.Room() < len(frames)*q.device.geometry.parts || rings.Unsent() >= burst {
		q.complete(q.socket)
	}
	var err error
	n, bytes := 0, uint64(0)
	for ; n < len(frames); n++ {
		f := &frames[n]
		if rings.Room() < rings.Parts(uint32(f.Offset), uint32(f.Length)) {
			break
		}
		if !q.sendable(f) || !rings.Add(f.Buffer, uint32(f.Offset), uint32(f.Length)) {
			err = q.refuse(f)
			break
		}
		bytes += uint64(f.Length)
	}
	rings.Publish()
	q.Counters.SentFrames.Add(uint64(n))
	q.Counters.SentBytes.Add(bytes)
	q.Full = n < len(frames) && err == nil
	if rings.Violation() != nil {
		q.Broken()
	} else {
		q.wake(false)
	}
	return n, err
}

// sendable reports whether a frame can be sent.
func (q *queue) sendable(f *ethernet.Frame) bool {
	return q.Cache().Pool().Contains(f) && f.Length >= ethernet.HeaderSize && int(f.Length) <= q.maxFrame &&
		f.Flags.Requests() == 0 && f.Segment == 0
}

// refuse says why a frame cannot be sent.
func (q *queue) refuse(f *ethernet.Frame) error {
	if f.Flags.Requests() != 0 || f.Segment != 0 {
		return q.BadFrame(f, "it asks for what is not switched on")
	}
	return q.BadFrame(f, "its buffer is with the kernel already")
}

// Unsent takes back the buffers of frames that have been sent.
func (q *queue) Unsent() (int, error) {
	if err := q.Port.Failed(); err != nil {
		return 0, err
	}
	q.lock.Lock()
	defer q.lock.Unlock()
	if !q.Live {
		return 0, nil
	}
	q.wake(true)
	q.complete(q.socket)
	if q.socket.rings.Violation() != nil {
		q.Broken()
	}
	return q.socket.rings.Unsent(), nil
}

// complete takes back the buffers of frames that have been sent. The lock is held.
func (q *queue) complete(s *socket) {
	for {
		n := s.rings.Complete(q.done[:])
		if n > 0 {
			q.Cache().GiveAll(q.done[:n])
			q.Moved()
		}
		if n < len(q.done) {
			return
		}
	}
}

// wake calls the kernel where it has said that it goes on only then: with frames that it
// has not taken, and also with those that it has not completed. The lock is held.
func (q *queue) wake(completions bool) {
	s := q.socket
	if s.rings.FillWakeup() {
		// It looks at the fill ring whatever it is asked for.
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}}, 0); err != nil {
			q.trouble(err)
		}
	}
	// A call that copies sends some frames only, and tells when there are more.
	for left := s.rings.Untaken(); s.rings.SendWakeup() && (left > 0 || completions && s.zero && s.rings.Unsent() > 0); {
		err := unix.Sendto(s.fd, nil, unix.MSG_DONTWAIT, nil)
		now := s.rings.Untaken()
		if err != unix.EAGAIN || now >= left {
			q.trouble(err)
			return
		}
		left = now
	}
}

// trouble looks at what the kernel has answered. What passes is tried again with the next
// call: no room, an interface that is down. The rest is for the watch.
func (q *queue) trouble(err error) {
	switch err {
	case nil, unix.EAGAIN, unix.EBUSY, unix.ENOBUFS, unix.EINTR, unix.ENETDOWN:
	default:
		q.Port.Poke()
	}
}
