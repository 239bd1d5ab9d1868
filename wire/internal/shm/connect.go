package shm

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/passedfd"
	"github.com/trapeze-nic/trapeze/internal/pause"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/wire/internal/ends"
)

// open starts the port in its role.
func (p *Port) open(ctx context.Context) error {
	busyUntil := time.Now().Add(busyTime)
	for {
		s, err := p.seek(ctx, true)
		// Another client came first, or a peer that has just died has not been noticed yet.
		again := p.options.Role != RoleListen && (errors.Is(err, ErrBusy) || errors.Is(err, unix.EADDRINUSE))
		switch {
		case again && time.Now().Before(busyUntil) && pause.For(ctx, firstRetry) == nil:
			continue
		case errors.Is(err, ends.ErrNotListening):
			p.lastErr = err
		case err != nil:
			return err
		case s != nil:
			p.begin(s)
		}
		p.complete()
		p.running.Go(func() { p.run(s) })
		return nil
	}
}

// seek makes a session with the process that listens, or listens. first says that the MTU may still change. Errors are
// *ends.Error; without a listener to connect to they wrap ends.ErrNotListening.
func (p *Port) seek(ctx context.Context, first bool) (s *session, err error) {
	op := "connect"
	if p.options.Role != RoleListen {
		s, err = p.dial(ctx, first)
	}
	if p.options.Role == RoleListen || p.options.Role == RoleAuto && errors.Is(err, ends.ErrNotListening) {
		op, err = "listen", p.listen(ctx)
	}
	if err != nil {
		return nil, &ends.Error{Op: op, Device: "shm:" + p.options.Path, Err: err, Hint: hint(err)}
	}
	return s, nil
}

// hint says what may help.
func hint(err error) string {
	switch {
	case errors.Is(err, ErrBusy):
		return "close one of the two, or choose another path"
	case errors.Is(err, ErrVersion):
		return "use the same release on both sides"
	case errors.Is(err, unix.EADDRINUSE):
		return "a process listens there, or it is no socket: choose another path, or role connect"
	case errors.Is(err, fs.ErrNotExist):
		return "the folder of the socket must be there"
	case errors.Is(err, fs.ErrPermission):
		return "the socket and its folder must be ours to use"
	case errors.Is(err, unix.EPROTOTYPE):
		return "a program of another kind listens there: choose another path"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "the process that listens there does not answer"
	}
	return ""
}

// run keeps the connection until the port is closed. s is one that is there
// already, or nil.
func (p *Port) run(s *session) {
	retry := firstRetry
	for {
		if s != nil {
			if p.serve(s); !s.broken() {
				retry = firstRetry
			}
			if p.listener != nil {
				p.listener.taken.Store(false)
			}
		}
		if s = p.next(&retry); s == nil {
			return
		}
	}
}

// next waits for a session. It returns nil when the port is closed.
func (p *Port) next(retry *time.Duration) *session {
	for {
		var s *session
		var err error
		if l := p.listener; l != nil {
			select {
			case c := <-l.found:
				if s, err = greet(p.ctx, c, p.welcome); err != nil {
					l.taken.Store(false)
				}
			case <-p.ctx.Done():
				return nil
			}
		} else if err = pause.For(p.ctx, *retry); err == nil {
			*retry = min(2**retry, lastRetry)
			s, err = p.seek(p.ctx, false)
		}
		if p.ctx.Err() != nil {
			if s != nil {
				s.end(vfio.ErrClosed)
				s.conn.Close()
				s.drop()
			}
			return nil
		}
		if err == nil && s != nil {
			p.begin(s)
			return s
		}
		if err != nil {
			p.note(err)
		}
	}
}

// note remembers why there is no session. That there is no peer says less than
// what was before.
func (p *Port) note(err error) {
	notListening := errors.Is(err, ends.ErrNotListening)
	if !notListening {
		p.counts.refused.Add(1)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !notListening || p.lastErr == nil {
		p.lastErr = err
	}
}

// dial connects and greets. first says that the MTU may still change. It fails
// with ErrNotListening if there is no listener.
func (p *Port) dial(ctx context.Context, first bool) (*session, error) {
	d := net.Dialer{Timeout: greetTime}
	found, err := d.DialContext(ctx, "unixpacket", p.options.Path)
	if err != nil {
		if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EAGAIN) {
			return nil, errors.Join(ends.ErrNotListening, err)
		}
		return nil, err
	}
	return greet(ctx, newConn(found.(*net.UnixConn)), func(c *conn) (*session, error) { return p.introduce(c, first) })
}

// introduce is the connector's part of the greeting. It maps the memory that the listener gives.
func (p *Port) introduce(c *conn, first bool) (_ *session, err error) {
	own, err := newBell()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = own.Close()
		}
	}()
	ours := p.greeting(0)
	if err := passedfd.Control(own, func(fd int) error { return c.send(ours.message(kindHello), fd) }); err != nil {
		return nil, err
	}
	m, fds, err := c.receive()
	if err != nil {
		if errors.Is(err, ends.ErrGone) {
			// It died, or is on its way out: as good as no peer.
			return nil, errors.Join(ends.ErrNotListening, err)
		}
		return nil, err
	}
	defer func() { _ = passedfd.Close(fds...) }()
	switch {
	case m.kind == kindRefuse:
		return nil, refusal(m)
	case m.kind != kindWelcome || len(fds) != 2:
		return nil, broken("kind of the first message", uint64(m.kind), "2, with two descriptors, or 4")
	case !isTimer(fds[1]):
		return nil, broken("timers in the descriptor of a bell", 0, "1")
	}
	theirs, err := greetingOf(m)
	if err != nil {
		return nil, err
	}
	if r := theirs.ring; r < MinRing || r&(r-1) != 0 || r < ringFor(0, max(p.options.MTU, theirs.mtu)) {
		return nil, broken("size of a ring", uint64(r), "a power of two that holds four of the largest frames")
	}
	memory, err := mapRings(fds[0], fileSize(theirs.ring))
	if err != nil {
		return nil, err
	}
	if err := c.send(message{kind: kindReady}); err != nil {
		memory.unmap()
		return nil, err
	}
	if first {
		p.options.MTU = min(p.options.MTU, theirs.mtu)
	}
	s := newSession(c, memory, theirs.ring, false, ours.flags&theirs.flags, theirs.mtu, own, fds[1])
	fds = fds[:1]
	memory.number = atomic.LoadUint32(s.Rx.Number)
	return s, nil
}
