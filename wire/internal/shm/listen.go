package shm

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"net"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/memfile"
	"github.com/trapeze-nic/trapeze/internal/passedfd"
	"github.com/trapeze-nic/trapeze/internal/unixsocket"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/wire/internal/ends"
)

// listener is the socket of the side that listens.
type listener struct {
	*unixsocket.Listener
	// found hands over the one connection that is welcome; taken says that there
	// is one, or is about to be.
	found chan *conn
	taken atomic.Bool
	// others limits how many are sent away at a time.
	others chan struct{}
}

// maxOthers is the number of further clients that are told the reason at a time.
const maxOthers = 4

// socketMode lets the owner connect, and no other user.
const socketMode fs.FileMode = 0o600

// listen makes the socket and takes connections.
func (p *Port) listen(ctx context.Context) error {
	l, err := unixsocket.Listen(ctx, "unixpacket", p.options.Path, socketMode)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return errors.Join(vfio.ErrClosed, l.Close())
	}
	made := &listener{Listener: l, found: make(chan *conn), others: make(chan struct{}, maxOthers)}
	p.listener = made
	p.running.Go(func() { _ = l.Each(p.ctx, func(c *net.UnixConn) { p.accept(made, c) }, nil) })
	return nil
}

// accept lets a peer in that has connected, if it is the only one, or sends it away.
func (p *Port) accept(l *listener, c *net.UnixConn) {
	found := newConn(c)
	switch {
	case p.options.Path[0] == '@' && !found.samePeer():
		p.counts.refused.Add(1)
		found.Close()
	case l.taken.CompareAndSwap(false, true):
		select {
		case l.found <- found:
		case <-p.ctx.Done():
			found.Close()
		}
	default:
		p.counts.refused.Add(1)
		select {
		case l.others <- struct{}{}:
			p.running.Go(func() {
				p.sendAway(found)
				<-l.others
			})
		default:
			found.Close()
		}
	}
}

// sendAway tells who has connected that there is a peer already. It hears the
// greeting first: the end of a connection that has not been read to its end
// would discard the answer.
func (p *Port) sendAway(c *conn) {
	_, _ = greet(p.ctx, c, func(c *conn) (*session, error) {
		_, fds, err := c.receive()
		if err != nil {
			return nil, err
		}
		_ = passedfd.Close(fds...)
		c.trySend(message{kind: kindRefuse, a: refuseBusy})
		return nil, ErrBusy
	})
}

// greet makes a session of a connection, which it owns: by one side's part of the greeting.
func greet(ctx context.Context, c *conn, part func(c *conn) (*session, error)) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, greetTime)
	defer cancel()
	// Whatever ends the context ends the greeting.
	stop := context.AfterFunc(ctx, c.interrupt)
	s, err := part(c)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err == nil {
		return s, nil
	}
	c.Close()
	if s != nil {
		s.drop()
	}
	return nil, err
}

// welcome is the listener's part of the greeting. It makes the memory.
func (p *Port) welcome(c *conn) (*session, error) {
	refuse := func(reason uint64, err error) (*session, error) {
		c.trySend(message{kind: kindRefuse, a: reason, b: version})
		return nil, err
	}
	m, fds, err := c.receive()
	defer func() { _ = passedfd.Close(fds...) }()
	if errors.Is(err, ends.ErrGone) {
		return nil, errors.Join(ends.ErrNotListening, err) // it only looked whether we are here
	}
	if err != nil {
		return nil, err
	}
	if m.kind != kindHello {
		return refuse(refuseHello, broken("kind of the first message", uint64(m.kind), "1"))
	}
	theirs, err := greetingOf(m)
	switch {
	case errors.Is(err, ErrVersion):
		return refuse(refuseVersion, err)
	case err == nil && (len(fds) == 0 || !isTimer(fds[0])):
		err = broken("timers in the descriptor of a bell", 0, "1")
	}
	if err != nil {
		return refuse(refuseHello, err)
	}
	ring := ringFor(p.options.Ring, max(p.options.MTU, theirs.mtu))
	ours := p.greeting(ring)
	// Final: nor shall the peer seal it in a way that one of us could not map it.
	fd, memory, err := create(fileSize(ring), memfile.Final)
	if err != nil {
		return refuse(refuseMemory, err)
	}
	defer func() {
		if fd >= 0 {
			unix.Close(fd)
		}
	}()
	own, err := newBell()
	if err != nil {
		memory.unmap()
		return refuse(refuseMemory, err)
	}
	s := newSession(c, memory, ring, true, ours.flags&theirs.flags, theirs.mtu, own, fds[0])
	fds = nil
	memory.number = rand.Uint32() | 1
	*s.Tx.Number = memory.number
	s.Tx.Prepare()
	s.Rx.Prepare()
	if err := passedfd.Control(own, func(own int) error { return c.send(ours.message(kindWelcome), fd, own) }); err != nil {
		return s, err
	}
	if m, fds, err = c.receive(); err != nil {
		return s, err
	}
	if m.kind != kindReady {
		return s, broken("kind of the second message", uint64(m.kind), "3")
	}
	if p.options.Transferable {
		s.file, fd = fd, -1
	}
	return s, nil
}
