package driver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/pause"
)

const (
	// DefaultBacklog is the backlog of a Listener if nothing else is said.
	DefaultBacklog = 64
	// headStart is the time that a client has the listener for itself. One that lives needs
	// a part of it, so that a listener with a limit does not connect others that it
	// then has to send away.
	headStart = 100 * time.Millisecond
	// afterRefusal is the pause after a request that came to nothing, so that a flood
	// of them does not keep the listener busy.
	afterRefusal = 10 * time.Millisecond
	// parting bounds how long a client is told that it is refused.
	parting = 2 * time.Second
)

// errLimit: the listener has taken as many connections as it was to take.
var errLimit = descriptors.ErrReject.Finer("the listener takes no more connections")

// ListenConfig says how a Listener takes connections of a kind.
type ListenConfig[C any] struct {
	// Backlog is the number of connections that may be set up or wait for Accept, 1 to as many as
	// the NIC has VIs; zero is DefaultBacklog. While there are so many, others are told that there is no listener.
	Backlog int
	// Limit, if not zero, is the number of connections that are taken in all. Those that come
	// later are told that there is no listener.
	Limit int
	// Connect sets a connection up, or says why the request is to be rejected. It may be
	// called from several goroutines, and may wait: only its own client waits for it.
	Connect func(context.Context, *Connection) (C, error)
	// Close ends a connection that was not accepted.
	Close func(C) error
	// Refused, if not nil, is told of requests that came to nothing.
	Refused func(*Connection, error)
}

// Listener takes connections at one name of a NIC. A client that does not answer keeps no
// other from being connected. Its methods may be called from several goroutines.
type Listener[C any] struct {
	nic     *NIC
	at      Address
	config  ListenConfig[C]
	ctx     context.Context // ends with the listener
	cancel  context.CancelCauseFunc
	places  chan struct{} // one taken for each connection of the backlog
	ready   chan C
	running sync.WaitGroup
	closed  atomic.Bool
	taken   atomic.Int64
	asks    context.CancelFunc // ends the waiting for requests
}

// Listen takes connections at name, 0 to MaxDiscriminator bytes, until the listener is closed. It fails with
// ErrInvalidParameter, or with ErrAddressInUse if another listener of the NIC has the name, for connections of whatever kind:
// a request names no kind when it is matched.
func Listen[C any](n *NIC, name string, c ListenConfig[C]) (*Listener[C], error) {
	const op = "listen"
	most := n.Query().MaxVIs
	c.Backlog = cmp.Or(c.Backlog, min(DefaultBacklog, most))
	_, err := discriminator(name)
	switch {
	case err != nil:
		return nil, n.error(op, err)
	case c.Backlog < 1 || c.Backlog > most:
		return nil, n.Refuse(op, descriptors.ErrInvalidParameter, "", "Backlog is %d, it may be 1 to %d", c.Backlog, most)
	case c.Limit < 0:
		return nil, n.Refuse(op, descriptors.ErrInvalidParameter, "", "Limit is %d", c.Limit)
	}
	l := &Listener[C]{nic: n, at: Address{MAC: n.Query().Address, Discriminator: name}, config: c,
		places: make(chan struct{}, c.Backlog), ready: make(chan C, c.Backlog)}
	if _, taken := n.listeners.LoadOrStore(name, l); taken {
		return nil, n.Fail(op, fmt.Errorf("%v: %w", l.at, ErrAddressInUse))
	}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	asking, stop := context.WithCancel(l.ctx)
	l.asks = stop
	l.running.Go(func() { l.ask(asking) })
	return l, nil
}

// end gives the name back and ends what waits.
func (l *Listener[C]) end(cause error) {
	l.nic.listeners.CompareAndDelete(l.at.Discriminator, l)
	l.cancel(cause)
}

// ask waits for requests while there is a place for them.
func (l *Listener[C]) ask(ctx context.Context) {
	for {
		select {
		case l.places <- struct{}{}:
		case <-ctx.Done():
			return
		}
		request, err := l.nic.ConnectWait(ctx, l.at.Discriminator)
		if err != nil {
			if ctx.Err() == nil {
				l.end(err)
			}
			return
		}
		answered := make(chan struct{})
		l.running.Go(func() { l.serve(request, answered) })
		select {
		case <-answered:
		case <-time.After(headStart):
		case <-ctx.Done():
		}
	}
}

// serve sets one connection up. The NIC ends that if the client does not answer.
func (l *Listener[C]) serve(request *Connection, answered chan<- struct{}) {
	c, err := l.config.Connect(l.ctx, request)
	if err == nil && !l.take() {
		err = l.nic.Fail("accept", errors.Join(errLimit, l.config.Close(c)))
	}
	close(answered)
	if err == nil {
		l.ready <- c // there is a place
		return
	}
	defer func() { <-l.places }()
	ctx, cancel := context.WithTimeout(context.Background(), parting)
	defer cancel()
	_ = request.Reject(ctx) // unless it has ended by itself: an error says that the client is gone
	if l.config.Refused != nil && l.ctx.Err() == nil {
		l.config.Refused(request, err)
	}
	_ = pause.For(l.ctx, afterRefusal)
}

// take counts a connection, unless there are as many as there may be.
func (l *Listener[C]) take() bool {
	if l.config.Limit == 0 {
		return true
	}
	n, limit := l.taken.Add(1), int64(l.config.Limit)
	if n == limit {
		l.asks()
	}
	return n <= limit
}

// Accept waits for the next connection. It fails with ErrClosed once the
// listener is closed, and with what is wrong with the NIC.
func (l *Listener[C]) Accept(ctx context.Context) (c C, err error) {
	const op = "accept"
	if err := l.nic.CheckCall(ctx, op); err != nil {
		return c, err
	}
	select {
	case c = <-l.ready:
		<-l.places
		return c, nil
	case <-ctx.Done():
		return c, l.nic.Fail(op, ctx.Err())
	case <-l.ctx.Done():
		return c, context.Cause(l.ctx)
	}
}

// Address returns the address to dial.
func (l *Listener[C]) Address() Address { return l.at }

// Close ends the listening, and the connections that wait for Accept. Those that were
// accepted go on. Closing again does nothing.
func (l *Listener[C]) Close() error {
	if l.closed.Swap(true) {
		return nil
	}
	l.end(l.nic.Fail("listen", net.ErrClosed))
	l.running.Wait()
	var errs []error
	for {
		select {
		case c := <-l.ready:
			errs = append(errs, l.config.Close(c))
		default:
			return errors.Join(errs...)
		}
	}
}
