package sealed

import (
	"net/netip"
	"slices"
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
	kept      bool       // configured: it stays
	sessions  []*session // those that are heard, the current one last
	pending   *attempt
	heardAt   time.Time
	look      time.Time // when to look at the current session again
	seen      counts    // when it was looked at last
	sentSince time.Time // first frame sent after anything was heard; zero: none
}

// counts are those of a session.
type counts struct {
	of                  *session
	sent, frames, heard uint64
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

// install makes a session the one that frames are sent under.
func (l *Link) install(s *session, now time.Time) {
	l.heardAt, l.pending, l.sentSince = now, nil, time.Time{}
	l.tunnel.began.Add(1)
	l.wanted.Store(false)
	l.current.Store(s)
	if l.sessions = append(l.sessions, s); len(l.sessions) > maxSessions {
		l.tunnel.drop(l.sessions[0])
		l.sessions = slices.Delete(l.sessions, 0, 1)
	}
}

// tick looks after a link, and returns when to come back.
func (l *Link) tick(now time.Time) time.Time {
	if !now.Before(l.look) {
		l.look = now.Add(tickEvery)
		l.expire(now)
		if s := l.current.Load(); s != nil && l.worn(s, now) {
			l.wanted.Store(true)
		}
	}
	if !l.wanted.Load() {
		return l.look
	}
	if p := l.pending; p == nil || now.Sub(p.begun) > helloLife {
		l.pending = l.tunnel.newAttempt(now)
	}
	p := l.pending
	if p == nil {
		return l.look
	}
	if now.Before(p.due) {
		return p.due
	}
	p.due = now.Add(p.pause)
	p.pause = min(2*p.pause, helloMost)
	l.wanted.Store(false) // it is repeated if there are frames still
	l.tunnel.out(p.datagram, l.Address)
	return l.look
}

// expire forgets the sessions whose time is over.
func (l *Link) expire(now time.Time) {
	l.sessions = slices.DeleteFunc(l.sessions, func(s *session) bool {
		over := now.Sub(s.made) > 2*l.tunnel.limits.Age
		if over {
			l.current.CompareAndSwap(s, nil)
			l.tunnel.drop(s)
		}
		return over
	})
}

// worn reports whether the current session is to be replaced: it is in use, and old, or nothing
// answers any more. It sends a sign of life where frames are heard and none are sent.
func (l *Link) worn(s *session, now time.Time) bool {
	was, is := l.seen, counts{s, s.sent.Load() - s.quiet, s.frames, s.heard}
	l.seen = is
	if was.of != s {
		was = counts{}
	}
	active := is.sent != was.sent
	if is.heard != was.heard {
		l.heardAt, l.sentSince = now, time.Time{}
	} else if active && l.sentSince.IsZero() {
		l.sentSince = now
	}
	// A sign of life is answered by nothing, or there would be no end of them.
	if is.frames != was.frames && !active {
		l.tunnel.keepalive(s)
	}
	old := now.Sub(s.made) > l.tunnel.limits.Age || s.sent.Load() >= l.tunnel.limits.Frames
	unanswered := !l.sentSince.IsZero() && now.Sub(l.sentSince) > answerWait
	return active && (old || unanswered)
}
