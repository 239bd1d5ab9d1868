package memif

import (
	"fmt"

	"github.com/trapeze-nic/trapeze/wire/internal/memif/internal/ring"
)

const (
	// idleLooks is the number of looks in vain that come before the peer is asked for
	// interrupts. It is less than those after which an engine's thread goes to
	// sleep, and more than a peer needs to answer.
	idleLooks = 96
	// turn is the number of frames that come from one ring before it is another's turn.
	turn = 64
)

// receiver belongs to the goroutine that receives.
type receiver struct {
	// session that is used, until it is seen to be over; nil if there is none.
	session *session
	// fast is the ring that is looked at first, if its memory cannot vanish.
	fast *ring.Receiver
	at   int // its index
	left int // frames before it is another's turn
	// idle counts the looks in a row that were in vain, up to idleLooks.
	idle    int
	scratch []byte

	// receive and release are careful calls, as a transmitter's.
	receive, release func()
	got              []byte
}

func (r *receiver) init() {
	r.scratch = ring.Scratch()
	r.receive = func() { r.got = r.ring().Receive() }
	r.release = func() { r.ring().Release() }
}

func (r *receiver) ring() *ring.Receiver { return r.session.receivers[r.at] }

// Receive returns a frame that the peer may be able to change while it is read.
func (p *Port) Receive() []byte {
	r := &p.rx
	q := r.fast
	if q == nil || p.current.Load() != r.session {
		return p.receive()
	}
	b := q.Receive()
	if b == nil {
		return p.lookAround()
	}
	if r.idle != 0 {
		p.notIdle()
	}
	return b
}

// receive is Receive where there is no ring to ask at once.
func (p *Port) receive() []byte {
	r := &p.rx
	if s := p.current.Load(); s != r.session {
		if r.session != nil {
			if r.ring().Holding() {
				// It is the caller's until Release. What there was of the
				// session's memory is private by now, or soon.
				return r.ring().Receive()
			}
			p.countReceiver()
			r.session.leave()
		}
		r.session, r.fast, r.at, r.left, r.idle = nil, nil, 0, turn, 0
		if s == nil || !s.acquire() {
			return nil
		}
		r.session = s
	}
	if r.session == nil {
		return nil
	}
	if r.session.guarded {
		return p.guarded()
	}
	r.fast = r.ring()
	return p.Receive()
}

// lookAround is called after the ring whose turn it is was found empty. It
// looks at the others, and at what there is to do when nothing comes.
func (p *Port) lookAround() []byte {
	r := &p.rx
	p.countReceiver()
	for range r.session.receivers {
		if v := r.fast.Violation(); v != nil {
			p.broken(r.session, fmt.Errorf("%w: %w", ErrViolation, v))
			return nil
		}
		r.at = (r.at + 1) % len(r.session.receivers)
		r.fast, r.left = r.ring(), turn
		if len(r.session.receivers) == 1 {
			break
		}
		if b := r.fast.Receive(); b != nil {
			p.notIdle()
			return b
		}
	}
	if r.idle == idleLooks {
		return nil
	}
	if r.idle++; r.idle < idleLooks || !p.interrupts.Load() {
		return nil
	}
	// Nothing has come for a while: the caller may be about to sleep. Frames
	// that came before the peer could see that it shall interrupt are looked
	// for once more.
	p.masked.Store(false)
	for _, q := range r.session.receivers {
		q.SetInterrupts(true)
	}
	return p.lookAgain()
}

// lookAgain looks at all rings.
func (p *Port) lookAgain() []byte {
	r := &p.rx
	for i, q := range r.session.receivers {
		if b := q.Receive(); b != nil {
			r.at, r.fast, r.left = i, q, turn
			p.notIdle()
			return b
		}
	}
	return nil
}

// notIdle ends a time without frames. The peer need not interrupt any more, as
// the caller will look for more frames.
func (p *Port) notIdle() {
	r := &p.rx
	r.idle = 0
	if p.interrupts.Load() && !p.masked.Load() {
		for _, q := range r.session.receivers {
			q.SetInterrupts(false)
		}
		p.masked.Store(true)
	}
}

func (p *Port) Release() {
	r := &p.rx
	q := r.fast
	if q == nil {
		if r.session != nil && r.session.guarded {
			p.guard(r.session, r.release)
		}
		return
	}
	q.Release()
	if r.left--; r.left == 0 {
		p.countReceiver()
		r.at = (r.at + 1) % len(r.session.receivers)
		r.fast, r.left = r.ring(), turn
	}
}

// guarded is Receive from rings whose memory may vanish. Interrupts, if wanted,
// are looked after by the port's goroutine alone.
func (p *Port) guarded() []byte {
	r := &p.rx
	for range r.session.receivers {
		r.got = nil
		if !p.guard(r.session, r.receive) || r.got != nil {
			return r.got
		}
		if v := r.ring().Violation(); v != nil {
			p.broken(r.session, fmt.Errorf("%w: %w", ErrViolation, v))
			return nil
		}
		p.countReceiver()
		r.at = (r.at + 1) % len(r.session.receivers)
	}
	return nil
}

// countReceiver adds what was received to the port's counters.
func (p *Port) countReceiver() {
	frames, bytes, tooLong := p.rx.ring().Counts()
	if frames != 0 {
		p.counters.framesReceived.Add(frames)
		p.counters.bytesReceived.Add(bytes)
	}
	if tooLong != 0 {
		p.counters.receivedTooLong.Add(tooLong)
	}
}
