package ring

import (
	"sync"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
)

// Entry is one entry of a ring: a message of MessageSize bytes, and the frame that is
// attached to it. It is the program's from GetSend to ReleaseSend, and from GetRecv to
// ReleaseRecv; then all calls fail with ErrNotOwned, until it is got again.
type Entry struct {
	r       *Ring
	receive bool
	state   atomic.Uint32
	index   uint32 // its number on the ring
	memory  []byte // the message in the NIC's memory, nil if it is not used there
	message []byte // memory, or the shadow of the message
	at      int    // where Reserve and Scan go on

	frame   Frame
	payload descriptors.DataSegment // the frame, as the NIC knows it
	length  int
	tag     uint32
	tagged  bool
	done    func(error)
	after   func() // as done, of a reply

	came driver.RingCompletion // of a receive
}

// States of an entry.
const (
	posted   uint32 = iota // the NIC's, or nobody's
	owned                  // the program's
	released               // the program's no more; one before it is not released yet
)

// side is one of the two rings.
type side struct {
	// mu is held while the driver finds out why something has completed in error, which may
	// take a command: so it is not one of the data path's.
	mu      sync.Mutex
	entries []Entry
	mask    uint32
	next    uint32 // number of the entry that is got next
	posted  uint32 // up to which released entries are posted
	taken   uint32 // up to which sends have been taken back
}

func (s *side) init(r *Ring, n int, message func(uint32) []byte) {
	s.entries, s.mask = make([]Entry, n), uint32(n-1)
	var shadows []byte
	if r.shadow {
		shadows = make([]byte, n*MessageSize)
	}
	for i := range s.entries {
		e := &s.entries[i]
		e.r = r
		if r.shadow {
			e.message = shadows[i*MessageSize:][:MessageSize:MessageSize]
		} else {
			e.message = message(uint32(i))
			e.memory = e.message
		}
	}
}

// entry is that of number i.
func (s *side) entry(i uint32) *Entry { return &s.entries[i&s.mask] }

// release marks e as released, and returns how many entries may be posted now. mu is held.
func (s *side) release(e *Entry) (n int) {
	e.state.Store(released)
	for s.posted != s.next && s.entry(s.posted).state.Load() == released {
		s.entry(s.posted).state.Store(posted)
		s.posted++
		n++
	}
	return n
}

func (e *Entry) check(op string) error {
	if e.state.Load() != owned {
		return e.r.refuse(op, ErrNotOwned, "get one with GetSend or GetRecv", "")
	}
	return nil
}

// Bytes is the message: MessageSize bytes in the NIC's memory, or in its shadow. Of a send
// they hold what they held before; all of them travel. Of a receive, the NIC's memory may be
// changed by a NIC that means ill: copy what is checked before it is used.
func (e *Entry) Bytes() []byte {
	if e.state.Load() != owned {
		return nil
	}
	return e.message
}

// Reserve returns the next n bytes of a message that is being built, like a stack that
// grows. It fails with ErrNoRoom, and reserves nothing then.
func (e *Entry) Reserve(n int) ([]byte, error) { return e.advance("reserve", n) }

// Scan returns the next n bytes of a message that is being read, see Reserve.
func (e *Entry) Scan(n int) ([]byte, error) { return e.advance("scan", n) }

func (e *Entry) advance(op string, n int) ([]byte, error) {
	if err := e.check(op); err != nil {
		return nil, err
	}
	if n < 0 || n > MessageSize-e.at {
		return nil, e.r.refuse(op, ErrNoRoom, "", "%d bytes at %d, of %d", n, e.at, MessageSize)
	}
	b := e.message[e.at:][:n:n]
	e.at += n
	return b, nil
}

// Attach attaches a frame. On a send it is the payload, all of it unless SetLength says less;
// on a receive it is where the payload of the next message in this entry goes, once the
// entry is released. It is the NIC's until the message has been sent or received. done, of a
// send, may be nil: it is called once the NIC needs the frame no more, with the error with
// which the message completed, if so; that happens when the entry is used again, in CheckSent
// and in Close, and nowhere else.
//
// It fails with ErrNotOwned, with ErrAttached, and with ErrInvalidParameter, ErrInvalidPtag or
// ErrClosed of package via for memory that the ring cannot use.
func (e *Entry) Attach(f Frame, done func(error)) error {
	const op = "attach"
	if err := e.check(op); err != nil {
		return err
	}
	if e.frame.Memory != nil {
		return e.r.refuse(op, ErrAttached, "detach it first", "")
	}
	payload, err := e.r.segment(op, f, e.receive)
	if err != nil {
		return err
	}
	if !e.receive && f.Length > e.r.options.MaxPayload {
		return e.r.refuse(op, ErrNoRoom, "", "a payload of %d bytes, of %d", f.Length, e.r.options.MaxPayload)
	}
	e.frame, e.payload = f, payload
	if !e.receive {
		e.length, e.done = f.Length, done
	}
	return nil
}

// Detach takes the frame back, which Length bytes of the payload are in if the entry is one
// that has been received. It is the zero Frame if none is attached. It fails with
// ErrNotOwned.
func (e *Entry) Detach() (Frame, error) {
	if err := e.check("detach"); err != nil {
		return Frame{}, err
	}
	f := e.frame
	e.frame, e.payload, e.done = Frame{}, descriptors.DataSegment{}, nil
	if !e.receive {
		e.length = 0
	}
	return f, nil
}

// Frame is what is attached.
func (e *Entry) Frame() Frame { return e.frame }

// SetLength says how many bytes of the frame travel. It fails with ErrNotOwned, and with
// ErrNoRoom if the frame has less.
func (e *Entry) SetLength(n int) error {
	const op = "set payload length"
	if err := e.check(op); err != nil {
		return err
	}
	if n < 0 || n > e.frame.Length || e.receive {
		return e.r.refuse(op, ErrNoRoom, "", "%d bytes, the frame has %d", n, e.frame.Length)
	}
	e.length = n
	return nil
}

// Length is how many bytes of payload travel, or have come and are in place.
func (e *Entry) Length() int { return e.length }

// Discarded is how many bytes of payload have come for which there was no room; all of a
// payload is discarded, or nothing.
func (e *Entry) Discarded() int { return int(e.came.Sent) - int(e.came.Length) }

// SetTag gives a message that is being built a tag, by which the receiver's NIC finds the
// frame that the receiver has named for it. It fails with ErrNotOwned.
func (e *Entry) SetTag(tag uint32) error {
	if err := e.check("set tag"); err != nil {
		return err
	}
	e.tag, e.tagged = tag, true
	return nil
}

// Tag is the message's tag, and whether it has one.
func (e *Entry) Tag() (tag uint32, ok bool) { return e.tag, e.tagged }

// Placed reports whether the payload is where the receiver has named a place for its tag,
// and not in the frame.
func (e *Entry) Placed() bool { return e.length > 0 && e.came.Place >= 0 }
