// Package listening takes connections at a name, of whatever kind they are, without letting
// one client keep another waiting.
package listening

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

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

// Causes of errors of this package; driver.NewError knows the codes of both.
var (
	// ErrInUse: another listener has the name.
	ErrInUse = errors.New("address in use")
	// ErrOption: a field of Config is out of its range.
	ErrOption = errors.New("option out of range")
	// ErrLimit: the listener has taken as many connections as it was to take.
	ErrLimit = errors.New("the listener takes no more connections")
)

// Request is a request to be connected.
type Request interface {
	comparable
	// Reject turns it down.
	Reject(context.Context) error
}

// NIC has the requests R.
type NIC[R Request] interface {
	comparable
	// ConnectWait waits for the next request at a name.
	ConnectWait(ctx context.Context, name string) (R, error)
	// Fail makes the error of an operation on the NIC of a cause.
	Fail(op string, cause error) error
}

// Config says how a Listener of connections C works.
type Config[N NIC[R], R Request, C any] struct {
	NIC     N
	Name    string
	Address fmt.Stringer // of the NIC and the name, for errors
	// Backlog is the number of connections that may be set up or wait for Accept, 1 to
	// MaxBacklog; zero is DefaultBacklog or MaxBacklog. While there are so many, others
	// are told that there is no listener.
	Backlog, MaxBacklog int
	// Limit, if not zero, is the number of connections that are taken in all. Those that come
	// later are told that there is no listener.
	Limit int
	// Connect sets a connection up, or says why the request is to be rejected. It may be
	// called from several goroutines, and may wait: only its own client waits for it.
	Connect func(context.Context, R) (C, error)
	// Close ends a connection that was not accepted.
	Close func(C) error
	// Refused, if not nil, is told of requests that came to nothing.
	Refused func(R, error)
}

// Listener takes connections at one name of a NIC. A client that does not answer keeps no
// other from being connected. Its methods may be called from several goroutines.
type Listener[N NIC[R], R Request, C any] struct {
	config  Config[N, R, C]
	ctx     context.Context // ends with Close
	cancel  context.CancelCauseFunc
	places  chan struct{} // one taken for each connection of the backlog
	ready   chan C
	running sync.WaitGroup
	closed  atomic.Bool

	mu    sync.Mutex
	taken int
	asks  context.CancelFunc // ends the waiting for requests
}

// place is where a listener listens: a name of a NIC, for connections of all kinds, as a
// request names no kind when it is matched.
type place struct {
	nic  any
	name string
}

// taken are the places of listeners that are open, with the context of each.
var taken = struct {
	sync.Mutex
	places map[place]context.Context
}{places: map[place]context.Context{}}

// claim takes a place for a listener, until its context ends. It returns false if another
// one has the place.
func (p place) claim(ctx context.Context) bool {
	taken.Lock()
	defer taken.Unlock()
	if other := taken.places[p]; other != nil && other.Err() == nil {
		return false
	}
	taken.places[p] = ctx
	context.AfterFunc(ctx, func() {
		taken.Lock()
		defer taken.Unlock()
		if taken.places[p] == ctx {
			delete(taken.places, p)
		}
	})
	return true
}

// Listen takes connections until the listener is closed. It fails with ErrOption, or with
// ErrInUse if another listener of the NIC has the name.
func Listen[N NIC[R], R Request, C any](c Config[N, R, C]) (*Listener[N, R, C], error) {
	const op = "listen"
	if c.Backlog == 0 {
		c.Backlog = min(DefaultBacklog, c.MaxBacklog)
	}
	switch {
	case c.Backlog < 1 || c.Backlog > c.MaxBacklog:
		return nil, c.NIC.Fail(op, fmt.Errorf("%w: Backlog is %d, it may be 1 to %d", ErrOption, c.Backlog, c.MaxBacklog))
	case c.Limit < 0:
		return nil, c.NIC.Fail(op, fmt.Errorf("%w: Limit is %d", ErrOption, c.Limit))
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	if !(place{c.NIC, c.Name}).claim(ctx) {
		cancel(nil)
		return nil, c.NIC.Fail(op, fmt.Errorf("%v: %w", c.Address, ErrInUse))
	}
	l := &Listener[N, R, C]{config: c, ctx: ctx, cancel: cancel, places: make(chan struct{}, c.Backlog), ready: make(chan C, c.Backlog)}
	asking, stop := context.WithCancel(l.ctx)
	l.asks = stop
	l.running.Go(func() { l.ask(asking) })
	return l, nil
}

// ask waits for requests while there is a place for them.
func (l *Listener[N, R, C]) ask(ctx context.Context) {
	for {
		select {
		case l.places <- struct{}{}:
		case <-ctx.Done():
			return
		}
		request, err := l.config.NIC.ConnectWait(ctx, l.config.Name)
		if err != nil {
			if ctx.Err() == nil {
				l.cancel(err)
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
func (l *Listener[N, R, C]) serve(request R, answered chan<- struct{}) {
	c, err := l.config.Connect(l.ctx, request)
	if err == nil && !l.take() {
		err = l.config.NIC.Fail("accept", errors.Join(ErrLimit, l.config.Close(c)))
	}
	close(answered)
	if err == nil {
		l.ready <- c // there is a place
		return
	}
	defer func() { <-l.places }()
	reject(request)
	if l.config.Refused != nil && l.ctx.Err() == nil {
		l.config.Refused(request, err)
	}
	_ = pause.For(l.ctx, afterRefusal)
}

// take counts a connection, unless there are as many as there may be.
func (l *Listener[N, R, C]) take() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.config.Limit > 0 {
		if l.taken == l.config.Limit {
			return false
		}
		if l.taken++; l.taken == l.config.Limit {
			l.asks()
		}
	}
	return true
}

// reject turns a request down unless it has ended by itself.
func reject[R Request](request R) {
	ctx, cancel := context.WithTimeout(context.Background(), parting)
	defer cancel()
	// An error says that the client is gone.
	_ = request.Reject(ctx)
}

// Accept waits for the next connection. It fails with net.ErrClosed once the
// listener is closed, and with what is wrong with the NIC.
func (l *Listener[N, R, C]) Accept(ctx context.Context) (c C, err error) {
	select {
	case c = <-l.ready:
		<-l.places
		return c, nil
	case <-ctx.Done():
		return c, l.config.NIC.Fail("accept", ctx.Err())
	case <-l.ctx.Done():
		return c, context.Cause(l.ctx)
	}
}

// Close ends the listening, and the connections that wait for Accept. Those that were
// accepted go on. Closing again does nothing.
func (l *Listener[N, R, C]) Close() error {
	if l.closed.Swap(true) {
		return nil
	}
	l.cancel(l.config.NIC.Fail("listen", net.ErrClosed))
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
