package sealed

import (
	"net/netip"
	"sync/atomic"
	"time"
)

// Link is the way to one address. Its methods may be called from any goroutine.
type Link struct {
	tunnel *Tunnel
	// Address is where the peer is.
	Address netip.AddrPort

	current atomic.Pointer[session]
	wanted  atomic.Bool // a frame found no session, or one that is used up

	// What follows is the tunnel's owner's.
	kept      bool // configured: it stays
	old       []*session
	pending   *attempt
	heardAt   time.Time
	look      time.Time // when to look at the current session again
	sentSince time.Time // first frame sent after anything was heard; zero: none
	// The counts of session seen when it was looked at last.
	seen                            *session
	sentSeen, framesSeen, heardSeen uint64
}

// attempt is a hello that has not been replied to.
type attempt struct {
	hello
	datagram []byte
	begun    time.Time
	due      time.Time
	pause    time.Duration
	wanted   bool // it is still wanted
}

// Seal makes a datagram of a frame, which stays valid until s is used again. It is
// nil if there is no session: then the frame is lost. If wake is true the tunnel's
// Tick is to be called, which begins a session.
func (l *Link) Seal(s *Sealer, frame []byte) (datagram []byte, wake bool) {
	if to := l.current.Load(); to != nil {
		n, most := to.sent.Add(1)-1, l.tunnel.limits.Frames
		if n == most {
			wake = !l.wanted.Swap(true)
		}
		if n < 2*most {
			return s.seal(to, n, frame), wake
		}
	}
	l.tunnel.unsent.Add(1)
	return nil, !l.wanted.Swap(true)
}

// install makes a session the one that frames are sent under, unless there is a
// younger one.
func (l *Link) install(s *session, now time.Time) {
	l.heardAt, l.pending, l.sentSince = now, nil, time.Time{}
	l.tunnel.began.Add(1)
	l.tunnel.changes++
	was := l.current.Load()
	if was != nil && was.made.After(s.made) {
		was = s
	} else {
		l.wanted.Store(false)
		l.current.Store(s)
	}
	if was == nil {
		return
	}
	was.last = now
	l.old = append(l.old, was)
	if len(l.old) > maxOld {
		l.tunnel.drop(l.old[0])
		l.old = l.old[1:]
	}
}

// tick looks after a link: sessions that are used up or out of use, hellos, and a
// sign of life where frames are heard and none are sent.
func (l *Link) tick(now time.Time) {
	renew := l.wanted.Load()
	if !now.Before(l.look) {
		l.look = now.Add(tickEvery)
		l.expire(now)
		if s := l.current.Load(); s != nil {
			renew = l.tickSession(s, now) || renew
		}
	}
	p := l.pending
	if p != nil {
		p.wanted = p.wanted || renew
		renew = p.wanted
	}
	switch {
	case p != nil && now.Sub(p.begun) > helloLife:
		if l.pending = nil; renew {
			l.begin(now)
		}
	case p == nil && renew:
		l.begin(now)
	case p != nil && !now.Before(p.due):
		l.repeat(now)
	}
}

// expire forgets the sessions whose time is over.
func (l *Link) expire(now time.Time) {
	t := l.tunnel
	kept := l.old[:0]
	for _, s := range l.old {
		if now.Sub(s.last) > linger || now.Sub(s.made) > 2*t.limits.Age {
			t.drop(s)
			continue
		}
		kept = append(kept, s)
	}
	clear(l.old[len(kept):])
	l.old = kept
	if s := l.current.Load(); s != nil && now.Sub(s.made) > 2*t.limits.Age {
		l.current.Store(nil)
		t.drop(s)
	}
}

// tickSession reports whether a session is to be replaced.
func (l *Link) tickSession(s *session, now time.Time) bool {
	if l.seen != s {
		l.seen, l.sentSeen, l.framesSeen, l.heardSeen = s, 0, 0, 0
	}
	sent := s.sent.Load() - s.quiet
	if s.heard != l.heardSeen {
		l.heardAt, l.sentSince = now, time.Time{}
	}
	active := sent != l.sentSeen
	if active && s.heard == l.heardSeen && l.sentSince.IsZero() {
		l.sentSince = now
	}
	// Keepalives are answered by nothing, or there would be no end of them.
	if s.frames != l.framesSeen && !active || s.heard == 0 && s.quiet < maxConfirms {
		l.tunnel.keepalive(s)
	}
	l.sentSeen, l.framesSeen, l.heardSeen = sent, s.frames, s.heard
	old := now.Sub(s.made) > l.tunnel.limits.Age || s.sent.Load() >= l.tunnel.limits.Frames
	unanswered := !l.sentSince.IsZero() && now.Sub(l.sentSince) > answerWait
	return active && (old || unanswered)
}

// begin sends a hello with new random numbers.
func (l *Link) begin(now time.Time) {
	t := l.tunnel
	p := &attempt{hello: hello{session: t.freeID(), instance: t.instance}, begun: now, pause: helloFirst, wanted: true}
	t.read(p.nonce[:])
	p.datagram = p.hello.datagram(t.handshake)
	l.pending = p
	l.repeat(now)
}

// repeat sends the hello that is pending once more, if it is still wanted.
func (l *Link) repeat(now time.Time) {
	p := l.pending
	p.due = now.Add(p.pause)
	p.pause = min(2*p.pause, helloMost)
	if p.wanted {
		p.wanted = false
		l.wanted.Store(false)
		l.tunnel.out(p.datagram, l.Address)
	}
}
