package shm

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/passedfd"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/wire/internal/ends"
	"github.com/trapeze-nic/trapeze/wire/internal/line"
)

// session is one connection with a peer, from the greeting to its end.
type session struct {
	conn   *conn
	memory *mapping
	// Pair and credits are the data path's at the start.
	line.Pair
	credits ends.CreditEnd
	shared  bool // both agree to share memory
	writes  bool // and let the other write
	// offered: the peer has been told what is exported. Guarded by Port.mu.
	offered bool
	own     *os.File
	bell    peerBell
	// marked: the peer has been given marks. mark is where this side marks itself, nil as long as it cannot.
	marked  atomic.Bool
	mark    atomic.Pointer[peerMark]
	file    int           // that of the memory; -1 unless the port is transferable
	pausing atomic.Bool   // for Port.Resume, and not for the end
	woken   atomic.Uint64 // how often the peer has woken this side

	once sync.Once
	done chan struct{} // closed by end
	why  error         // before done is closed

	mu      sync.Mutex
	answers map[answer]chan struct{} // closed when it has come
}

// answer is one with a waiter.
type answer struct {
	kind kind
	id   uint32
}

// newSession lays out the rings for the side that listens, or the other. agreed are the flags of both
// sides, and mtu is the peer's. The session owns this side's bell, and the descriptor of the peer's.
func newSession(c *conn, m *mapping, ring int, listening bool, agreed uint32, mtu int, own *os.File, bell int) *session {
	to, from, credits := lay(m.mem, ring, listening)
	return &session{conn: c, memory: m,
		// Both processes take part in membarrier, or senders make barriers.
		Pair: line.NewPair(to, from, mtu, agreed&flagBarrier != 0), credits: credits,
		shared: agreed&flagShare != 0, writes: agreed&(flagShare|flagWrite) == flagShare|flagWrite, file: -1,
		own: own, bell: peerBell{fd: bell},
		done: make(chan struct{}), answers: map[answer]chan struct{}{}}
}

// end ends the session because of why. The first reason counts.
func (s *session) end(why error) {
	s.once.Do(func() {
		s.why = why
		close(s.done)
		// The reader stops. The socket stays open as long as the peer's
		// memory may be in use.
		s.conn.interrupt()
	})
}

// void revokes all loans of a session that has ended. Its peer may not know yet.
func (s *session) void() { s.memory.use(func() { s.Tx.VoidAll() }) }

// cause is why the session has ended.
func (s *session) cause() error {
	<-s.done
	return s.why
}

// broken reports whether a session that has ended did so because the peer broke
// the rules.
func (s *session) broken() bool { return errors.Is(s.cause(), ErrPeer) }

// ask sends a message and waits for its answer, whose kind is the next one. It fails with the reason for
// which the session has ended, or context.DeadlineExceeded.
func (s *session) ask(m message, timeout time.Duration) error {
	came := make(chan struct{})
	a := answer{m.kind + 1, m.id}
	s.mu.Lock()
	s.answers[a] = came
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.answers[a] == came {
			delete(s.answers, a)
		}
	}()
	if err := s.conn.send(m); errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	// Any other error ends the session, which the receiving side notices.
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-came:
		return nil
	case <-s.done:
		return s.why
	case <-timer.C:
		return context.DeadlineExceeded
	}
}

// answered takes an answer.
func (s *session) answered(a answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if came := s.answers[a]; came != nil {
		delete(s.answers, a)
		close(came)
	}
}

// serve keeps a session that has begun until it ends, or is paused.
func (p *Port) serve(s *session) {
	stop := context.AfterFunc(p.ctx, func() { s.end(vfio.ErrClosed) })
	defer stop()
	p.link.Call()
	quit := p.hear(s)
	why := p.converse(s)
	quit()
	if !p.pause(s) {
		p.finish(s, why)
	}
}

// finish ends a session because of why, and lets the peer know.
func (p *Port) finish(s *session, why error) {
	s.end(why)
	p.lose(s)
	if s.broken() {
		p.counts.violations.Add(1)
	}
	p.link.Call()
	p.endLoans()
	s.conn.trySend(message{kind: kindGoodbye})
	s.closeFiles()
	s.conn.Close()
}

// drop gives up a session that the data path has not come to, but for its connection.
func (s *session) drop() {
	s.memory.unmap()
	s.closeFiles()
}

// closeFiles closes the descriptors of a session but for its connection.
func (s *session) closeFiles() {
	_ = s.own.Close()
	s.bell.close()
	if s.file >= 0 {
		unix.Close(s.file)
		s.file = -1
	}
}

// begin tells a new peer what it has to know, and takes the link up.
func (p *Port) begin(s *session) {
	p.plugMu.Lock()
	defer p.plugMu.Unlock()
	var err error
	if p.state.Load()&statePulled != 0 {
		err = s.conn.send(message{kind: kindLink})
	}
	p.enter(s)
	if p.Wake.IsSet() {
		s.memory.use(func() { s.SetAsleep(true) })
	}
	if err = errors.Join(err, p.offerTable(s), p.offerMarks(s), p.offerAll(s)); err != nil {
		s.end(err) // serve will see
	}
}

// converse takes the peer's messages until there are no more.
func (p *Port) converse(s *session) error {
	for {
		m, fds, err := s.conn.receive()
		if err == nil {
			err = p.take(s, m, fds)
		}
		_ = passedfd.Close(fds...)
		if err != nil {
			return err
		}
	}
}

// take does what a message asks for. The descriptors stay the caller's.
func (p *Port) take(s *session, m message, fds []int) error {
	switch m.kind {
	case kindExport, kindExported, kindUnexport, kindTable:
		if !s.shared {
			return broken("kind of a message", uint64(m.kind), "none about memory, which is not shared")
		}
	}
	if len(fds) == 0 && m.kind > kindRefuse && m.kind.files() > 0 {
		return broken("descriptors of a message", 0, "1")
	}
	switch m.kind {
	case kindLink:
		return p.peerPlug(s, m)
	case kindLinkSeen, kindUnexported:
		s.answered(answer{m.kind, m.id})
		return nil
	case kindExport:
		return p.takeOffer(s, m, fds[0])
	case kindExported:
		p.accepted(m)
		return nil
	case kindUnexport:
		return p.takeBack(s, m)
	case kindGoodbye:
		return ends.ErrGone
	case kindTable:
		return p.takeTable(s, m, fds[0])
	case kindMarks:
		return s.takeMarks(m, fds[0])
	}
	return broken("kind of a message", uint64(m.kind), "5 to 13")
}

// peerPlug notes that the peer's plug was pulled or put back.
func (p *Port) peerPlug(s *session, m message) error {
	switch m.a {
	case 0:
		p.state.Or(statePeerPulled)
	case 1:
		p.state.And(^statePeerPulled)
	default:
		return broken("state of the plug", m.a, "0 or 1")
	}
	p.Wake.Call() // for frames that have waited, either way
	err := s.conn.send(message{kind: kindLinkSeen, id: m.id})
	p.link.Call()
	return err
}
