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
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/wire/internal/ends"
)

// open starts the port in its role.
func (p *Port) open(ctx context.Context) error {
	fail := func(op string, err error) error {
		return &ends.Error{Op: op, Device: "shm:" + p.options.Path, Err: err, Hint: hint(err)}
	}
	if p.options.Role == RoleListen {
		if err := p.listen(ctx); err != nil {
			return fail("listen", err)
		}
		p.running.Go(func() { p.run(nil) })
		return nil
	}
	busyUntil := time.Now().Add(busyTime)
	for {
		s, err := p.dial(ctx, true)
		switch {
		case err == nil:
			p.begin(s)
			p.running.Go(func() { p.run(s) })
			return nil
		case errors.Is(err, ErrBusy) && time.Now().Before(busyUntil):
			if pause(ctx, firstRetry) != nil {
				return fail("connect", err)
			}
			continue
		case !errors.Is(err, ends.ErrNotListening):
			return fail("connect", err)
		case p.options.Role == RoleConnect:
			p.lastErr = err
			p.running.Go(func() { p.run(nil) })
			return nil
		}
		err = p.listen(ctx)
		switch {
		case err == nil:
			p.running.Go(func() { p.run(nil) })
			return nil
		case !errors.Is(err, unix.EADDRINUSE) || pause(ctx, firstRetry) != nil || !time.Now().Before(busyUntil):
			return fail("listen", err)
		}
		// Another client came first.
	}
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
				if s, err = p.welcome(c); err != nil {
					l.taken.Store(false)
				}
			case <-p.ctx.Done():
				return nil
			}
		} else {
			s, err = p.reconnect(retry)
		}
		if p.ctx.Err() != nil {
			if s != nil {
				s.end(vfio.ErrClosed)
				s.conn.close()
				s.memory.unmap()
				s.closeFiles()
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

// reconnect pauses, and connects once more. A port that may do either listens if
// no port does.
func (p *Port) reconnect(retry *time.Duration) (*session, error) {
	if err := pause(p.ctx, *retry); err != nil {
		return nil, err
	}
	*retry = min(2**retry, lastRetry)
	s, err := p.dial(p.ctx, false)
	if errors.Is(err, ends.ErrNotListening) && p.options.Role == RoleAuto {
		if lerr := p.listen(p.ctx); lerr != nil {
			return nil, lerr
		}
		return nil, nil
	}
	return s, err
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// dial connects and greets. first says that the MTU may still change. It fails
// with ErrNotListening if there is no listener.
func (p *Port) dial(ctx context.Context, first bool) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, greetTime)
	defer cancel()
	var d net.Dialer
	found, err := d.DialContext(ctx, "unixpacket", p.options.Path)
	if err != nil {
		if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EAGAIN) {
			return nil, errors.Join(ends.ErrNotListening, err)
		}
		return nil, err
	}
	c, err := newConn(found.(*net.UnixConn))
	if err != nil {
		return nil, err
	}
	s, err := p.introduce(ctx, c, first)
	if err != nil {
		c.close()
		return nil, err
	}
	return s, nil
}

// introduce says hello, and maps the memory that the listener gives.
func (p *Port) introduce(ctx context.Context, c *conn, first bool) (*session, error) {
	// Whatever ends the context ends the greeting.
	stop := context.AfterFunc(ctx, func() { _ = c.c.SetReadDeadline(time.Unix(1, 0)) })
	ours := p.greet(0)
	if err := c.send(ours.message(kindHello), -1); err != nil {
		return nil, err
	}
	m, fd, err := c.receive(kindWelcome)
	if err != nil {
		if errors.Is(err, ends.ErrGone) {
			// It died, or is on its way out: as good as no peer.
			return nil, errors.Join(ends.ErrNotListening, err)
		}
		return nil, err
	}
	if fd >= 0 {
		defer passedfd.Close(fd)
	}
	switch {
	case m.kind == kindRefuse:
		return nil, refusal(m)
	case m.kind != kindWelcome || fd < 0:
		return nil, broken("kind of the first message", uint64(m.kind), "2, with a descriptor, or 4")
	}
	theirs, err := greetingOf(m)
	if err != nil {
		return nil, err
	}
	if r := theirs.ring; r < MinRing || r&(r-1) != 0 || r < ringFor(0, max(p.options.MTU, theirs.mtu)) {
		return nil, broken("size of a ring", uint64(r), "a power of two that holds four of the largest frames")
	}
	memory, err := p.maps.mapRings(fd, fileSize(theirs.ring))
	if err != nil {
		return nil, err
	}
	if err := errors.Join(c.send(message{kind: kindReady}, -1), endGreeting(ctx, stop, c)); err != nil {
		memory.unmap()
		return nil, err
	}
	if first {
		p.options.MTU = min(p.options.MTU, theirs.mtu)
	}
	s := newSession(c, memory, theirs.ring, false, ours.flags&theirs.flags, theirs.mtu)
	memory.number = atomic.LoadUint32(s.Rx.Number)
	return s, nil
}

// endGreeting takes the greeting's deadline off a connection.
func endGreeting(ctx context.Context, stop func() bool, c *conn) error {
	if !stop() {
		return ctx.Err()
	}
	return c.c.SetReadDeadline(time.Time{})
}
