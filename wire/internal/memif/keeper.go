package memif

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/passedfd"
	"github.com/trapeze-nic/trapeze/wire/internal/ends"
	"github.com/trapeze-nic/trapeze/wire/internal/memif/internal/protocol"
	"github.com/trapeze-nic/trapeze/wire/internal/memif/internal/ring"
)

const (
	// firstRetry and lastRetry bound the time between a client's attempts to
	// connect, which doubles with each that fails. A connection that ended
	// because the peer has gone or a plug was pulled is no failure.
	firstRetry = 20 * time.Millisecond
	lastRetry  = 500 * time.Millisecond
	// maxVisitors bounds the clients that have connected and not yet said what
	// they want. The one that has waited longest makes place for another.
	maxVisitors = 16
	// pause is the time without new clients after one that made no sense: a
	// flood of them costs little. While there is a guest, it is also patience times as long as the
	// nonsense took.
	pause    = time.Millisecond
	patience = 9
)

// keeper is the port's goroutine: it lets clients in, or connects, and looks after the connection.
// Each peer is a state machine, of which nothing waits but poll.
type keeper struct {
	port     *Port
	listener *protocol.Listener // the port's
	peers    []*peer            // the oldest first
	guest    *peer              // the one of them that the port talks to; nil if there is none
	watch    watch              // of the guest's connection

	retryAt  time.Time     // when a client connects
	retry    time.Duration // the pause after that
	closedTo time.Time     // no client is accepted until then

	fds []unix.PollFd
}

// The first descriptors that are polled. Those of peers follow, then events.
const (
	fdBell = iota
	fdListener
	fdPeers
)

// run looks after the port until it is closed.
func (k *keeper) run() {
	defer close(k.port.stopped)
	for k.round() {
	}
	for len(k.peers) > 0 {
		k.drop(k.peers[0], ErrUnplugged)
	}
}

// round waits for the next thing to do, and does it. It returns false once the port is closed.
func (k *keeper) round() bool {
	p := k.port
	now := time.Now()
	if p.isClosed() {
		return false
	}
	if k.guest != nil && k.guest.up {
		if err := k.watch.tick(now); err != nil {
			k.drop(k.guest, err)
		}
	}
	if k.guest == nil && p.options.Role == Client && p.plugged() && !now.Before(k.retryAt) {
		k.dial(now)
	}
	until := k.prepare(now)
	if await(k.fds, until) != nil {
		time.Sleep(pause) // for want of memory
		return true
	}
	for i, q := range k.peers {
		q.ready = k.fds[fdPeers+i].Revents != 0
	}
	events := k.fds[fdPeers+len(k.peers):]
	if k.fds[fdBell].Revents != 0 {
		p.bell.drain()
		k.watch.next, k.watch.idleRounds = time.Time{}, 0 // there may be another sleeper
	}
	if err := k.broken(); err != nil {
		k.drop(k.guest, err)
	}
	if k.guest != nil {
		k.interrupts(events)
	}
	began := time.Now()
	good := true
	for i := len(k.peers) - 1; i >= 0; i-- {
		q := k.peers[i]
		switch {
		case q.ready:
			good = k.hear(q) && good
		case !q.until.IsZero() && now.After(q.until):
			err := ErrTimeout
			if q != k.guest {
				err = fmt.Errorf("%w: it has not said what it wants", ErrTimeout)
			}
			k.drop(q, err)
		}
	}
	if k.fds[fdListener].Revents != 0 {
		good = k.accept() && good
	}
	if !good {
		k.closedTo = time.Now().Add(pause)
		if k.guest != nil {
			k.closedTo = k.closedTo.Add(patience * time.Since(began))
		}
	}
	return true
}

// prepare sets what is polled, and returns until when; zero if there is nothing to wait for but that.
func (k *keeper) prepare(now time.Time) (until time.Time) {
	p := k.port
	earlier := func(t time.Time) {
		if !t.IsZero() && (until.IsZero() || t.Before(until)) {
			until = t
		}
	}
	k.fds = append(k.fds[:0], unix.PollFd{Fd: int32(p.bell.fd), Events: unix.POLLIN}, unix.PollFd{Fd: -1, Events: unix.POLLIN})
	switch {
	case k.listener == nil:
		if k.guest == nil && p.plugged() {
			earlier(k.retryAt)
		}
	case now.Before(k.closedTo):
		earlier(k.closedTo)
	case passedfd.Full():
		earlier(now.Add(pause))
	default:
		k.fds[fdListener].Fd = int32(k.listener.FD())
	}
	for _, q := range k.peers {
		k.fds = append(k.fds, unix.PollFd{Fd: int32(q.conn.FD()), Events: unix.POLLIN})
		if !q.until.IsZero() {
			earlier(q.until.Add(time.Nanosecond))
		}
	}
	if k.guest != nil && k.guest.up {
		earlier(now.Add(unblockEvery))
		earlier(k.watch.next)
		if p.interrupts.Load() && !now.Before(k.watch.maskedUntil) {
			for _, e := range k.guest.session.receiveEvents {
				k.fds = append(k.fds, unix.PollFd{Fd: int32(e.fd), Events: unix.POLLIN})
			}
		}
	}
	return until
}

// broken says why the guest's connection is over, found by those who send and receive or pull the plug; nil
// if it is not.
func (k *keeper) broken() error {
	switch {
	case k.guest == nil:
		return nil
	case !k.port.plugged():
		return ErrUnplugged
	case !k.guest.up:
		return nil
	}
	s := k.guest.session
	for _, e := range s.sendEvents {
		if e.unblock() {
			return fmt.Errorf("%w: it keeps those who signal it waiting", ErrViolation)
		}
	}
	if f := s.failure.Load(); f != nil {
		return *f
	}
	if k.port.current.Load() != s { // the plug was pulled, and put back already
		return ErrUnplugged
	}
	return nil
}

// interrupts passes the guest's interrupts on.
func (k *keeper) interrupts(events []unix.PollFd) {
	for i, e := range events {
		if e.Revents == 0 {
			continue
		}
		k.guest.session.receiveEvents[i].drain()
		if err := k.watch.interrupted(); err != nil {
			k.drop(k.guest, err)
			return
		}
	}
}

// dial connects to the server's socket.
func (k *keeper) dial(now time.Time) {
	p := k.port
	k.retryAt, k.retry = now.Add(k.retry), min(2*k.retry, lastRetry)
	conn, err := protocol.Dial(p.options.Socket)
	switch {
	case err == nil:
		k.guest = k.meet(conn, now.Add(patientSteps*p.options.Timeout))
		k.guest.take = k.guest.hello
		return
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ECONNREFUSED):
		err = fmt.Errorf("%w: %w", ends.ErrNotListening, err)
	}
	p.note(p.fail("connect", "", err, hintFor(err)))
}

// accept greets the next client. It reports whether one came that may be a good one.
func (k *keeper) accept() bool {
	o := &k.port.options
	conn, err := k.listener.Accept()
	if err != nil {
		return errors.Is(err, protocol.ErrAgain)
	}
	hello := protocol.Hello{Name: o.Name, MinVersion: protocol.Version, MaxVersion: protocol.Version, MaxRegion: maxRegions - 1,
		MaxS2C: uint16(o.Queues - 1), MaxC2S: uint16(o.Queues - 1), MaxLog2: min(ring.MaxLog2, log2(o.Ring))}
	if err := conn.Send(hello, -1); err != nil {
		conn.Close()
		return false
	}
	visitors := slices.DeleteFunc(slices.Clone(k.peers), func(q *peer) bool { return q == k.guest })
	if len(visitors) == maxVisitors {
		k.drop(visitors[0], fmt.Errorf("%w: others are waiting too", ErrTimeout))
	}
	q := k.meet(conn, time.Now().Add(o.Timeout))
	q.take = q.init
	return true
}

// meet begins a conversation, whose connection must have been made at a time.
func (k *keeper) meet(conn *protocol.Conn, ends time.Time) *peer {
	q := &peer{keeper: k, conn: conn, file: -1, ends: ends}
	q.wait()
	k.peers = append(k.peers, q)
	return q
}

// hear takes a message of a peer, and reports whether it was a good one.
func (k *keeper) hear(q *peer) bool {
	body, fd, err := q.conn.Receive()
	if errors.Is(err, protocol.ErrAgain) {
		return true
	}
	if body, fd, err = judge(body, fd, err); err == nil {
		err = q.take(body, fd)
	}
	if err != nil {
		k.drop(q, err)
		return false
	}
	q.wait()
	return true
}

// drop ends the conversation with a peer, and notes why.
func (k *keeper) drop(q *peer, err error) {
	p := k.port
	k.peers = slices.DeleteFunc(k.peers, func(o *peer) bool { return o == q })
	op, hint := "connect", hintFor(err)
	left := errors.Is(err, ends.ErrGone) || errors.Is(err, ErrRefused) || errors.Is(err, ErrUnplugged)
	switch {
	case q.up:
		op, hint = "transfer", ""
		p.current.CompareAndSwap(q.session, nil)
		if left {
			k.retryAt, k.retry = time.Now().Add(firstRetry), 2*firstRetry
		}
	case p.options.Role == Server:
		op = "accept"
	}
	if q.session != nil {
		q.session.end()
	}
	closeFile(q.file)
	visitor := q != k.guest
	if !visitor {
		k.guest = nil // before the peer is told: the next client may come
	}
	if text := reasonFor(err); text != "" {
		_ = q.conn.Send(protocol.Disconnect{Reason: text}, -1)
	}
	q.conn.Close()
	if !visitor || !left {
		p.note(p.fail(op, q.name, err, hint)) // else it has wanted nothing
	}
	if q.up {
		p.Link.Call()
	}
}

// hintFor says what may help.
func hintFor(err error) string {
	switch {
	case errors.Is(err, ErrRefused):
		return "check id, secret and number of queues at both ends"
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		return "check ulimit -n"
	case errors.Is(err, ends.ErrNotListening), errors.Is(err, ends.ErrGone):
	case errors.Is(err, unix.EADDRINUSE):
		return "choose another socket, or stop what uses this one"
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EACCES), errors.Is(err, unix.EROFS):
		return "the folder of the socket must be there and writable"
	}
	return ""
}
