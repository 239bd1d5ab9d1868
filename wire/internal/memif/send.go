package memif

import (
	"fmt"

	"github.com/trapeze-nic/trapeze/wire/internal/memif/internal/ring"
)

// transmitter belongs to the goroutine that sends.
//
// Frames of one batch, from one Flush to the next, go to one ring. The next
// batch goes to the next ring if the peer has taken everything from this one,
// and else to the same: so frames do not overtake each other.
type transmitter struct {
	// session that is used, until it is seen to be over; nil if there is none.
	session *session
	// fast is the ring that is used, if it can be used without further ado: it
	// is known which one, and its memory cannot vanish.
	fast *ring.Sender
	// at is its index, and chosen whether a batch has begun.
	at     int
	chosen bool
	// scratch is for frames that are copied into the ring, or that have no receiver.
	scratch []byte
	lost    bool // the reserved frame is one of these

	// careful calls of a ring whose memory may vanish; made once, so that
	// nothing is allocated. want and got are argument and result.
	reserve, commit, flush func()
	want                   int
	got                    []byte
	interrupt              bool
}

func (t *transmitter) init() {
	t.scratch = ring.Scratch()
	t.reserve = func() { t.got = t.ring().Reserve(t.want) }
	t.commit = func() { t.ring().Commit() }
	t.flush = func() { t.interrupt = t.ring().Flush() }
}

func (t *transmitter) ring() *ring.Sender { return t.session.senders[t.at] }

// Reserve always has room while the link is down, for a frame that is lost.
func (p *Port) Reserve(n int) []byte {
	t := &p.tx
	if q := t.fast; q != nil && p.current.Load() == t.session && uint(n) <= uint(p.Longest) {
		if b := q.Reserve(n); b != nil {
			return b
		}
		p.checkSender(q)
		return nil
	}
	return p.reserve(n)
}

// reserve is Reserve where more is to be done than to ask a ring.
func (p *Port) reserve(n int) []byte {
	t := &p.tx
	t.lost = false
	if t.session != p.current.Load() {
		p.changeSender()
	}
	if uint(n) > uint(p.Longest) {
		if t.session != nil {
			t.ring().Cancel()
		}
		return nil
	}
	if t.session == nil {
		t.lost = true
		return t.scratch[:n:n]
	}
	if !t.chosen {
		p.chooseSender()
	}
	t.want, t.got = n, nil
	if !p.guard(t.session, t.reserve) {
		return nil
	}
	if t.got == nil {
		p.checkSender(t.ring())
	}
	return t.got
}

// changeSender leaves a session that is over and joins the one that there is.
func (p *Port) changeSender() {
	t := &p.tx
	if t.session != nil {
		p.countSender()
		t.session.leave()
	}
	t.session, t.fast, t.at, t.chosen = nil, nil, 0, false
	if s := p.current.Load(); s != nil && s.acquire() {
		t.session = s
	}
}

// chooseSender chooses the ring for a batch.
func (p *Port) chooseSender() {
	t := &p.tx
	s := t.session
	t.chosen = true
	if s.guarded {
		// Whether a ring is empty is in memory that may have vanished: one has
		// to do.
		return
	}
	if len(s.senders) > 1 && t.ring().Drained() {
		t.at = (t.at + 1) % len(s.senders)
	}
	t.fast = t.ring()
}

func (p *Port) Commit() {
	t := &p.tx
	switch {
	case t.fast != nil:
		t.fast.Commit()
	case t.lost:
		t.lost = false
		p.counters.lost.Add(1)
	case t.session != nil && t.session.guarded:
		p.guard(t.session, t.commit)
	}
}

// Drained is not known of memory that may vanish.
func (p *Port) Drained() bool {
	s := p.tx.session
	if s == nil || s != p.current.Load() || s.guarded {
		return true
	}
	for _, q := range s.senders {
		if !q.Drained() {
			return false
		}
	}
	return true
}

func (p *Port) Flush() {
	t := &p.tx
	switch {
	case t.fast != nil:
		t.interrupt = t.fast.Flush()
		if len(t.session.senders) > 1 {
			t.fast, t.chosen = nil, false
		}
	case t.session != nil && t.session.guarded:
		if !p.guard(t.session, t.flush) {
			return
		}
	default:
		return
	}
	if t.interrupt {
		t.interrupt = false
		t.session.sendEvents[t.at].signal()
		p.counters.interruptsSent.Add(1)
	}
	p.countSender()
}

// countSender adds what was sent to the port's counters.
func (p *Port) countSender() {
	t := &p.tx
	frames, bytes, tooLong := t.ring().Counts()
	switch {
	case frames == 0 && tooLong == 0:
	case t.session != p.current.Load():
		p.counters.lost.Add(frames + tooLong)
	default:
		p.counters.framesSent.Add(frames)
		p.counters.bytesSent.Add(bytes)
		if tooLong != 0 {
			p.counters.sentTooLong.Add(tooLong)
		}
	}
}

// checkSender ends the connection if the peer has violated the ring.
func (p *Port) checkSender(q *ring.Sender) {
	if v := q.Violation(); v != nil {
		p.broken(p.tx.session, fmt.Errorf("%w: %w", ErrViolation, v))
	}
}
