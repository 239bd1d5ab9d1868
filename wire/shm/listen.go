package shm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/passedfd"
)

// listener is the socket of the side that listens.
type listener struct {
	*net.UnixListener
	// found hands over the one connection that is welcome; taken says that there
	// is one, or is about to be.
	found chan *conn
	taken atomic.Bool
	// others limits how many are sent away at a time.
	others chan struct{}
}

// maxOthers is how many strangers are given a reason at a time.
const maxOthers = 4

// socketMode lets the owner connect, and nobody else.
const socketMode fs.FileMode = 0o600

// listen makes the socket and takes connections. A socket that a dead process
// has left is replaced. It fails with EADDRINUSE if somebody listens there, or
// something is there that is no socket.
func (p *Port) listen(ctx context.Context) error {
	path := p.options.Path
	if !p.options.abstract() {
		unlock, err := lockFolder(ctx, filepath.Dir(path))
		if err != nil {
			return err
		}
		defer unlock()
		if err := removeDead(path); err != nil {
			return err
		}
	}
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return err
	}
	if !p.options.abstract() {
		if err := os.Chmod(path, socketMode); err != nil {
			return errors.Join(err, l.Close())
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return errors.Join(ErrClosed, l.Close())
	}
	made := &listener{UnixListener: l, found: make(chan *conn), others: make(chan struct{}, maxOthers)}
	p.listener = made
	p.running.Go(func() { p.accept(made) })
	return nil
}

// lockFolder keeps others from replacing a dead socket in a folder at the same
// time: of two that find one, the second would remove what the first has made.
func lockFolder(ctx context.Context, folder string) (unlock func(), err error) {
	fd, err := unix.Open(folder, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EACCES) {
		return func() {}, nil // it can be used without being read
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: folder, Err: err}
	}
	unlock = func() { unix.Close(fd) }
	for end := time.Now().Add(greetTime); ; {
		err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return unlock, nil
		case errors.Is(err, unix.EINTR):
		case !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(end):
			return unlock, nil // a file system without locks, or somebody else's
		}
		if err := pause(ctx, time.Millisecond); err != nil {
			unlock()
			return nil, err
		}
	}
}

// removeDead removes a socket that nobody listens at.
func removeDead(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%w: there is something that is no socket", unix.EADDRINUSE)
	}
	c, err := net.DialTimeout("unixpacket", path, greetTime)
	switch {
	case err == nil:
		return errors.Join(fmt.Errorf("%w: somebody listens there", unix.EADDRINUSE), c.Close())
	case errors.Is(err, unix.ECONNREFUSED):
		return os.Remove(path)
	case errors.Is(err, unix.EPROTOTYPE), errors.Is(err, unix.EAGAIN):
		return fmt.Errorf("%w: somebody listens there: %w", unix.EADDRINUSE, err)
	}
	return err
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
// would swallow the answer.
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
		}
		return nil, err
	}
	return s, nil
}

// agree is the listener's side of the greeting.
func (p *Port) agree(c *conn) (*session, error) {
	refuse := func(reason uint64, err error) (*session, error) {
		c.trySend(message{kind: kindRefuse, a: reason, b: oldest | newest<<16})
		return nil, err
	}
	m, _, err := c.receive()
	if errors.Is(err, ErrGone) {
		return nil, errors.Join(ErrNobody, err) // it only looked whether we are here
	}
	if err != nil {
		return nil, err
	}
	if m.kind != kindHello {
		return refuse(refuseHello, &PeerError{"kind of the first message", uint64(m.kind), "1"})
	}
	theirs, err := greetingOf(m)
	switch {
	case errors.Is(err, ErrVersion):
		return refuse(refuseVersion, err)
	case err != nil:
		return refuse(refuseHello, err)
	}
	ring := ringFor(p.options.Ring, max(p.mtu, theirs.mtu))
	fd, memory, err := p.createRings(ring)
	if err != nil {
		return refuse(refuseMemory, err)
	}
	defer unix.Close(fd)
	version := min(theirs.newest, newest)
	ours := p.greet(version, version, ring)
	s := newSession(c, memory, ring, true, ours, theirs)
	s.tx.prepare()
	s.rx.prepare()
	if err := c.send(ours.message(kindWelcome), fd); err != nil {
		return s, err
	}
	if m, _, err = c.receive(); err != nil {
		return s, err
	}
	if m.kind != kindReady {
		return s, &PeerError{"kind of the second message", uint64(m.kind), "3"}
	}
	return s, nil
}

// createRings makes and maps the memory of a connection.
func (p *Port) createRings(ring int) (fd int, m *mapping, err error) {
	fd, err = createFile(2 * halfSize(ring))
	if err != nil {
		return -1, nil, err
	}
	if m, err = p.maps.mapRings(fd, ring); err != nil {
		unix.Close(fd)
		return -1, nil, err
	}
	return fd, m, nil
}
