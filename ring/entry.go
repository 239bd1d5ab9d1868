package ring

import (
	"sync"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/via"
)

// Entry is one entry of a ring: a message of MessageSize bytes, and a frame. The program owns
// it from GetSend to ReleaseSend, and from GetRecv to ReleaseRecv. At other times all calls
// fail with ErrNotOwned.
type Entry struct {
	r       *Ring
	receive bool
	state   atomic.Uint32
	index   uint32 // its number on the ring
	memory  []byte // the message in the NIC's memory, nil with a shadow
	message []byte // memory, or the message's shadow
	at      int    // the offset for Reserve and Scan

	frame   Frame
	payload datasheet.DataSegment // the frame in the NIC's terms
	length  int
	tag     uint32
	tagged  bool
	done    func(error)
	after   func() // as done, of a reply

	came driver.RingCompletion // of a receive
}

// States of an entry.
const (
	posted   uint32 = iota // the NIC may use it
	owned                  // the program owns it
	released               // it waits for an earlier entry to be released
)

// side is one of the two rings.
type side struct {
	q *driver.RingQueue
	// mu may be held during an admin command, when the driver looks for the cause of an
	// error. So it must not be a lock of the data path.
	mu      sync.Mutex
	entries []Entry
	mask    uint32
	next    uint32 // number of the entry to get next
	posted  uint32 // number of the first entry not posted
	taken   uint32 // number of the first send not taken back
}

func (s *side) init(r *Ring, q *driver.RingQueue) {
	n := r.options.Entries
	s.q, s.entries, s.mask = q, make([]Entry, n), uint32(n-1)
	var shadows []byte
	if r.options.Shadow {
		shadows = make([]byte, n*MessageSize)
	}
	for i := range s.entries {
		e := &s.entries[i]
		e.r, e.receive = r, s == &r.recv
		if r.options.Shadow {
			e.message = shadows[i*MessageSize:][:MessageSize:MessageSize]
		} else {
			e.message = q.Message(uint32(i))
			e.memory = e.message
		}
	}
}

// release releases e. It posts what has been released of the entries that come next.
func (s *side) release(e *Entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.state.Store(released)
	n := 0
	for ; s.posted != s.next; n++ {
		oldest := &s.entries[s.posted&s.mask]
		if oldest.state.Load() != released {
			break
		}
		oldest.state.Store(posted)
		s.posted++
	}
	if n == 0 {
		return nil
	}
	return s.q.Post(n)
}

func (e *Entry) check(op string) error {
	if e.state.Load() != owned {
		return e.r.refuse(op, ErrNotOwned, "get one with GetSend or GetRecv", "")
	}
	return nil
}

// Bytes returns the message: MessageSize bytes in the NIC's memory, or in its shadow. A new
// entry to send still has the bytes of an earlier message, and all of them travel. A hostile
// NIC can change a received message in its own memory: copy it before you check it.
func (e *Entry) Bytes() []byte {
	if e.state.Load() != owned {
		return nil
	}
	return e.message
}

// Reserve returns the next n bytes of the message to fill in. If the message has fewer left,
// it fails with ErrNoRoom and reserves nothing.
func (e *Entry) Reserve(n int) ([]byte, error) { return e.advance("reserve", n) }

// Scan returns the next n bytes of the message to read. It fails as Reserve does.
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

// Attach attaches a frame in place of the one that the entry has, if any: the zero Frame for none. On a send it is
// the payload. On a receive it takes the payload of the next message in this entry. The NIC uses the frame
// until the message has been sent or received.
//
// done is for sends, and may be nil. It is called once the NIC needs the frame no more, with
// the error of the send. It runs in GetSend, CheckSent, WaitSent and Close only.
//
// Attach fails with ErrNotOwned. For memory that the ring cannot use it fails
// with via.ErrInvalidParameter, via.ErrInvalidPtag or net.ErrClosed.
func (e *Entry) Attach(f Frame, done func(error)) error {
	const op = "attach"
	if err := e.check(op); err != nil {
		return err
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

// Frame returns the attached frame.
func (e *Entry) Frame() Frame { return e.frame }

// Length counts the bytes of payload: those to send, or those that were received.
func (e *Entry) Length() int { return e.length }

// Discarded counts the bytes of a payload that found no room. A payload is discarded whole.
func (e *Entry) Discarded() int { return int(e.came.Sent) - int(e.came.Length) }

// SetTag gives the message a tag. The receiver's NIC puts the payload into the place of that
// tag (Ring.SetPlace). SetTag fails with ErrNotOwned.
func (e *Entry) SetTag(tag uint32) error {
	if err := e.check("set tag"); err != nil {
		return err
	}
	e.tag, e.tagged = tag, true
	return nil
}

// Tag returns the message's tag, and whether it has one.
func (e *Entry) Tag() (tag uint32, ok bool) { return e.tag, e.tagged }

// Placed reports whether the payload is in the place of its tag, and not in the frame.
func (e *Entry) Placed() bool { return e.length > 0 && e.came.Place >= 0 }

// Frame is a part of registered memory: Length bytes from Offset on. The zero value has no
// memory.
type Frame struct {
	Memory         *via.Memory
	Offset, Length int
}

// Bytes returns the memory, or nil if it is closed or the frame is outside of it.
func (f Frame) Bytes() []byte {
	if f.Memory == nil {
		return nil
	}
	b := f.Memory.Bytes()
	if f.Offset < 0 || f.Length < 0 || f.Offset > len(b) || f.Length > len(b)-f.Offset {
		return nil
	}
	return b[f.Offset:][:f.Length:f.Length]
}

// segment describes f for the NIC, which may write to it if written is set.
func (r *Ring) segment(op string, f Frame, written bool) (datasheet.DataSegment, error) {
	m := f.Memory
	if m == nil {
		if f.Length != 0 {
			return datasheet.DataSegment{}, r.refuse(op, via.ErrInvalidParameter, "", "%d bytes of no memory", f.Length)
		}
		return datasheet.DataSegment{}, nil
	}
	b := m.Bytes()
	if b == nil {
		return datasheet.DataSegment{}, r.refuse(op, via.ErrClosed, "", "the memory is closed")
	}
	if f.Offset < 0 || f.Length < 0 || f.Offset > len(b) || f.Length > len(b)-f.Offset {
		return datasheet.DataSegment{}, r.refuse(op, via.ErrInvalidParameter, "", "%d bytes at %d, of memory of %d", f.Length, f.Offset, len(b))
	}
	known := &r.sendable
	if written {
		known = &r.receivable
	}
	if !known.contains(m) {
		switch a := m.Attributes(); {
		case a.Ptag != r.d.Attributes().Ptag:
			return datasheet.DataSegment{}, r.refuse(op, via.ErrInvalidPtag, "ring and memory must have the same protection tag", "")
		case written && a.ReadOnly:
			return datasheet.DataSegment{}, r.refuse(op, via.ErrInvalidParameter, "", "the memory is read-only")
		}
		known.add(m)
	}
	return datasheet.DataSegment{Address: m.Address() + uint64(f.Offset), Handle: m.Handle(), Length: uint32(f.Length)}, nil
}

// memories remembers a few memories that a ring may use, as asking takes a lock of the NIC. The
// NIC itself finds attributes that have changed since.
type memories struct {
	known [4]atomic.Pointer[via.Memory]
	next  atomic.Uint32
}

func (s *memories) contains(m *via.Memory) bool {
	for i := range s.known {
		if s.known[i].Load() == m {
			return true
		}
	}
	return false
}

func (s *memories) add(m *via.Memory) {
	s.known[s.next.Add(1)%uint32(len(s.known))].Store(m)
}
