package connecting

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/driver"
)

const (
	// DefaultBacklog is the backlog of a Listener if nothing else is said.
	DefaultBacklog = 64
	// headStart is how long a client has the listener for itself. One that lives needs
	// a part of it, so that a listener with a limit does not connect others that it
	// then has to send away.
	headStart = 100 * time.Millisecond
	// afterRefusal is the pause after a request that came to nothing, so that a flood
	// of them does not keep the listener busy.
	afterRefusal = 10 * time.Millisecond
	// parting bounds how long a client is told that it is refused.
	parting = 2 * time.Second
)

// Config says how a Listener of connections C works.
type Config[C any] struct {
	NIC *driver.NIC
	// Address is where it listens: the NIC's own, with the discriminator.
	Address driver.Address
	// Backlog is how many connections may be set up or wait for Accept; zero is
	// DefaultBacklog. While there are so many, others are told that nobody listens.
	Backlog int
	// Limit, if not zero, is how many connections are taken in all. Those that come
	// later are told that nobody listens.
	Limit int
	// Connect sets a connection up, or says why the request is to be rejected. It may be
	// called from several goroutines, and may wait: only its own client waits for it.
	Connect func(context.Context, *driver.Connection) (C, error)
	// Close ends a connection that nobody has accepted.
	Close func(C) error
	// Refused, if not nil, is told of requests that came to nothing.
	Refused func(driver.Remote, error)
}

// Listener takes connections at one discriminator of a NIC. A client that does not
// answer keeps nobody from being connected. Its methods may be called from several
// goroutines.
type Listener[C any] struct {
	config  Config[C]
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

// name is what a listener has for itself: a discriminator of a NIC, for VIs, rings and
// channels alike, as a request names no kind when it is matched.
type name struct {
	nic           *driver.NIC
	discriminator string
}

// taken are the names of listeners that are open, with the context of each.
var taken = struct {
	sync.Mutex
	names map[name]context.Context
}{names: map[name]context.Context{}}

// claim takes a name for a listener, until its context ends. It returns false if another
// one has the name.
func (n name) claim(ctx context.Context) bool {
	taken.Lock()
	defer taken.Unlock()
	if other := taken.names[n]; other != nil && other.Err() == nil {
		return false
	}
	taken.names[n] = ctx
	context.AfterFunc(ctx, func() {
		taken.Lock()
		defer taken.Unlock()
		if taken.names[n] == ctx {
			delete(taken.names, n)
		}
	})
	return true
}

// Listen takes connections until the listener is closed. It fails with ErrAddressInUse if
// another listener of the NIC has the name.
func Listen[C any](c Config[C]) (*Listener[C], error) {
	limit := int(c.NIC.Identity().MaxEndpoints) - 1 // endpoint 0 is reserved
	if c.Backlog == 0 {
		c.Backlog = min(DefaultBacklog, limit)
	}
	if c.Backlog < 0 || c.Backlog > limit || c.Limit < 0 {
		return nil, &driver.Error{Op: "listen", Device: c.NIC.Address(), Code: driver.ErrInvalidParameter,
			Err: fmt.Errorf("backlog of %d, it may be 1 to %d; limit of %d", c.Backlog, limit, c.Limit)}
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	if !(name{c.NIC, string(c.Address.Discriminator)}).claim(ctx) {
		cancel(nil)
		return nil, &driver.Error{Op: "listen", Device: c.NIC.Address(), Code: driver.ErrResource,
			Err:  fmt.Errorf("%v: %w", c.Address, driver.ErrAddressInUse),
			Hint: "another listener of this NIC has the name: close it, or take another name"}
	}
	l := &Listener[C]{config: c, ctx: ctx, cancel: cancel, places: make(chan struct{}, c.Backlog), ready: make(chan C, c.Backlog)}
	asking, stop := context.WithCancel(l.ctx)
	l.asks = stop
	l.running.Go(func() { l.ask(asking) })
	return l, nil
}

// ask waits for requests while there is a place for them.
func (l *Listener[C]) ask(ctx context.Context) {
	for {
		select {
		case l.places <- struct{}{}:
		case <-ctx.Done():
			return
		}
		request, err := l.config.NIC.ConnectWait(ctx, l.config.Address.Discriminator)
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
func (l *Listener[C]) serve(request *driver.Connection, answered chan<- struct{}) {
	c, err := l.config.Connect(l.ctx, request)
	if err == nil && !l.take() {
		err = errors.Join(driver.ErrReject, l.config.Close(c))
	}
	close(answered)
	if err == nil {
		l.ready <- c // there is a place
		return
	}
	defer func() { <-l.places }()
	reject(request)
	if errors.Is(err, driver.ErrDevice) {
		l.cancel(err)
	}
	if l.config.Refused != nil && l.ctx.Err() == nil {
		l.config.Refused(request.Remote, err)
	}
	select {
	case <-time.After(afterRefusal):
	case <-l.ctx.Done():
	}
}

// take counts a connection, unless there are as many as there may be.
func (l *Listener[C]) take() bool {
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
func reject(request *driver.Connection) {
	ctx, cancel := context.WithTimeout(context.Background(), parting)
	defer cancel()
	// An error says that there is nobody left to tell.
	_ = request.Reject(ctx)
}

// Accept waits for the next connection. It fails with ErrClosed once the listener is
// closed, and with what is wrong with the NIC.
func (l *Listener[C]) Accept(ctx context.Context) (c C, err error) {
	select {
	case c = <-l.ready:
		<-l.places
		return c, nil
	case <-ctx.Done():
		return c, driver.NewError("accept", l.config.NIC.Address(), ctx.Err())
	case <-l.ctx.Done():
		return c, context.Cause(l.ctx)
	}
}

// Address to dial.
func (l *Listener[C]) Address() driver.Address { return l.config.Address }

// Close ends the listening, and the connections that wait for Accept. Those that were
// accepted go on. Closing again fails with ErrClosed.
func (l *Listener[C]) Close() error {
	closed := driver.NewError("listen", l.config.NIC.Address(), driver.ErrClosed)
	if l.closed.Swap(true) {
		return closed
	}
	l.cancel(closed)
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
