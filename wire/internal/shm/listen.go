package shm

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"

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
	p.running.Go(func() { p.accept(made) })
	return nil
}

// accept lets one peer in at a time, and sends others away.
func (p *Port) accept(l *listener) {
	for {
		if passedfd.Full() {
			if pause(p.ctx, firstRetry) != nil {
				return
			}
			continue // peers that have gone have left what cannot be closed
		}
		c, err := l.AcceptUnix()
		if err != nil {
			if errors.Is(err, net.ErrClosed) || pause(p.ctx, firstRetry) != nil {
				return
			}
			continue // out of descriptors, or the like
		}
		found, err := newConn(c)
		if err != nil {
			continue
		}
		if p.options.abstract() && !found.samePeer() {
			p.counts.refused.Add(1)
			found.close()
			continue
		}
		if !l.taken.CompareAndSwap(false, true) {
			p.counts.refused.Add(1)
			select {
			case l.others <- struct{}{}:
				p.running.Go(func() {
					p.sendAway(found)
					<-l.others
				})
			default:
				found.close()
			}
			continue
		}
		select {
		case l.found <- found:
		case <-p.ctx.Done():
			found.close()
			return
		}
	}
}

// sendAway tells who has connected that there is a peer already. It hears the
// greeting first: the end of a connection that has not been read to its end
// would discard the answer.
func (p *Port) sendAway(c *conn) {
	ctx, cancel := context.WithTimeout(p.ctx, greetTime)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = c.c.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, _, err := c.receive(); err == nil {
		c.trySend(message{kind: kindRefuse, a: refuseBusy})
	}
	c.close()
}

// welcome greets who has connected, and makes the memory.
func (p *Port) welcome(c *conn) (*session, error) {
	ctx, cancel := context.WithTimeout(p.ctx, greetTime)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = c.c.SetReadDeadline(time.Unix(1, 0)) })
	s, err := p.agree(c)
	if err == nil {
		err = endGreeting(ctx, stop, c)
	}
	if err != nil {
		stop()
		c.close()
		if s != nil {
			s.memory.unmap()
			s.closeFiles()
		}
		return nil, err
	}
	return s, nil
}

// agree is the listener's side of the greeting.
func (p *Port) agree(c *conn) (*session, error) {
	refuse := func(reason uint64, err error) (*session, error) {
		c.trySend(message{kind: kindRefuse, a: reason, b: version})
		return nil, err
	}
	m, _, err := c.receive()
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
	case err != nil:
		return refuse(refuseHello, err)
	}
	ring := ringFor(p.options.Ring, max(p.options.MTU, theirs.mtu))
	ours := p.greet(ring)
	fd, memory, err := p.createRings(fileSize(ring))
	if err != nil {
		return refuse(refuseMemory, err)
	}
	defer func() {
		if fd >= 0 {
			unix.Close(fd)
		}
	}()
	s := newSession(c, memory, ring, true, ours.flags&theirs.flags, theirs.mtu)
	memory.number = rand.Uint32() | 1
	*s.Tx.Number = memory.number
	s.Tx.Prepare()
	s.Rx.Prepare()
	if err := c.send(ours.message(kindWelcome), fd); err != nil {
		return s, err
	}
	if m, _, err = c.receive(); err != nil {
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

// createRings makes and maps the memory of a connection, of size bytes.
func (p *Port) createRings(size int) (fd int, m *mapping, err error) {
	// Nor shall the peer seal it in a way that one of us could not map it.
	fd, err = memfile.Create("shm", uint64(size), memfile.Options{Seals: memfile.Final, Filled: true})
	if err != nil {
		return -1, nil, err
	}
	if m, err = p.maps.mapRings(fd, size); err != nil {
		unix.Close(fd)
		return -1, nil, err
	}
	return fd, m, nil
}
