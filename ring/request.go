package ring

import (
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/via"
)

// Request is a call that Serve has taken. The handler may use it, and pass it on, until Reply.
type Request struct {
	// Bytes is the request: 0 to MaxRequest bytes.
	Bytes []byte
	// Payload is the request's payload, where it landed. Its Length is 0 if it has none.
	Payload Frame
	// Discarded counts the bytes of a payload that found no room.
	Discarded int

	s       *server
	e       *Entry
	tag     uint32
	room    uint32
	message [MessageSize]byte
	state   atomic.Uint32

	// The reply, while it waits for room to be sent.
	answer   [MaxRequest]byte
	size     int
	frame    Frame
	payload  datasheet.DataSegment
	done     func()
	held     bool   // the reply's payload is the request's, which keeps the entry
	finished func() // finish, bound once
	next     *Request
}

// States of a request.
const (
	unasked uint32 = iota
	asked
	answered
)

// Room returns the size in bytes of the largest payload that a reply may have.
func (q *Request) Room() int { return int(min(uint64(q.room), uint64(q.s.r.options.MaxPayload))) }

// Reply answers the request with 0 to MaxRequest bytes, and with the frame payload if that has
// a length. It does not wait: if the ring is full, Serve sends the reply later. It may be
// called from any goroutine, once. The request must not be used afterwards.
//
// payload must not change until the NIC has sent it. Then done, which may be nil, is called,
// on any goroutine that uses the ring. It is called once, also if Reply fails.
//
// Reply fails with ErrNoRoom if the bytes are too many or payload is larger than Room, and
// with the errors of Attach; then it may be called again. It fails with ErrPeerGone or
// net.ErrClosed, and with via.ErrInvalidState if the request has been answered.
func (q *Request) Reply(b []byte, payload Frame, done func()) error {
	const op = "reply"
	r := q.s.r
	var segment datasheet.DataSegment
	var err error
	if len(b) > MaxRequest || payload.Length > q.Room() {
		err = r.refuse(op, ErrNoRoom, "", "a reply of %d bytes, of %d, and a payload of %d, of %d", len(b), MaxRequest, payload.Length, q.Room())
	} else {
		segment, err = r.segment(op, payload, false)
	}
	if q.state.Load() != asked || err == nil && !q.state.CompareAndSwap(asked, answered) {
		err = r.refuse(op, via.ErrInvalidState, "", "the request has been answered")
	}
	if err != nil {
		run(done)
		return err
	}
	q.size = copy(q.answer[:], b)
	q.frame, q.payload, q.done = payload, segment, done
	q.held = payload.Length > 0 && payload.Memory == q.Payload.Memory
	held := q.held
	err = q.send()
	if err == via.ErrQueueFull {
		if q.s.queue(q) {
			return nil
		}
		err = r.refuse(op, via.ErrClosed, "", "Serve has ended")
	}
	if err != nil {
		q.drop()
		return err
	}
	if held {
		return nil
	}
	return q.release()
}

// send sends the reply. It fails with via.ErrQueueFull if the ring is full. When it returns, a request that
// is held may have been finished, and be another one.
func (q *Request) send() error {
	r := q.s.r
	e, err := r.GetSend()
	if err != nil {
		return err
	}
	header{kind: reply, size: q.size, tag: q.tag, payload: uint32(q.frame.Length)}.put(e.message)
	copy(e.message[headerSize:], q.answer[:q.size])
	e.frame, e.payload, e.length = q.frame, q.payload, q.frame.Length
	e.tag, e.tagged = q.tag, true
	e.after = q.done
	if q.held {
		e.after = q.finished
	}
	if err := r.ReleaseSend(e); err != nil {
		e.after = nil
		return err
	}
	return nil
}

// finish is called when the NIC has sent a reply whose payload is the request's.
func (q *Request) finish() {
	run(q.done)
	// It fails if the connection has ended. Serve sees that too.
	_ = q.release()
}

// drop gives up a reply.
func (q *Request) drop() {
	run(q.done)
	_ = q.release() // as in finish
}

// release lets the ring use the request's entry again.
func (q *Request) release() error {
	e := q.e
	q.done, q.frame, q.Bytes, q.Payload = nil, Frame{}, nil, Frame{}
	q.state.Store(unasked)
	return q.s.r.ReleaseRecv(e)
}

func run(f func()) {
	if f != nil {
		f()
	}
}
