package endpoint

import (
	"context"
	"errors"
	"time"

	"github.com/trapeze-nic/trapeze/via"
)

const (
	// backlog is how many clients may be on their way from a request to a
	// connection that Accept has returned.
	backlog = 64
	// headStart is how long the only client on its way has the listener for itself.
	// One that lives needs a part of it, so that who accepts a single client does
	// not connect others that he then has to send away.
	headStart = 100 * time.Millisecond
	// settle is the pause after a request that could not be accepted, so that a
	// flood of them does not keep a server busy.
	settle = 10 * time.Millisecond
)

// Listener takes connections on one connection point of a NIC. It is used by one
// goroutine at a time, and closed at the end.
type Listener struct {
	NIC           *via.NIC
	Discriminator []byte
	// Options is given what the other side has and returns what this side wants,
	// or why the request is to be rejected. It may be called from several goroutines.
	Options func(via.Remote) (Options, error)
	// Refused, if not nil, is told by Accept of requests that came to nothing.
	Refused func(via.Remote, error)

	// What follows is set by the first Accept. underWay counts the set-ups that
	// have begun and whose end nobody has taken from ended, which has room for all.
	underWay int
	ended    chan setup
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
}

// setup is how the way of a client has ended.
type setup struct {
	endpoint *Endpoint
	remote   via.Remote
	err      error
}

// asked is how a wait for a client has ended.
type asked struct {
	connection *via.Connection
	err        error
}

// Accept waits for a client and returns the connection with it. Clients whose
// requests cannot be accepted are rejected; an error means that there is no use in
// waiting on. A client that does not answer keeps nobody from being accepted.
func (l *Listener) Accept(ctx context.Context) (*Endpoint, via.Remote, error) {
	if l.ended == nil {
		l.ended = make(chan setup, backlog)
		l.ctx, l.cancel = context.WithCancel(context.Background())
	}
	for {
		s, err := l.next(ctx)
		for ; s != nil; s, err = l.await(ctx, settle) {
			if s.err == nil || errors.Is(s.err, via.ErrClosed) || errors.Is(s.err, via.ErrDevice) {
				return s.endpoint, s.remote, s.err
			}
			if l.Refused != nil {
				l.Refused(s.remote, s.err)
			}
		}
		if err != nil {
			return nil, via.Remote{}, err
		}
	}
}

// next returns the next set-up that ends, or nil after it has begun one.
func (l *Listener) next(ctx context.Context) (*setup, error) {
	if l.underWay == backlog {
		return l.await(ctx, 0)
	}
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	asks := make(chan asked, 1)
	go func() {
		c, err := l.NIC.ConnectWait(waiting, l.Discriminator)
		asks <- asked{c, err}
	}()
	select {
	case s := <-l.ended:
		l.underWay--
		stop()
		if a := <-asks; a.err == nil { // it came all the same
			l.begin(a.connection)
		}
		return &s, nil
	case a := <-asks:
		if a.err != nil {
			return nil, a.err
		}
		l.begin(a.connection)
	}
	if l.underWay > 1 {
		return nil, nil
	}
	return l.await(ctx, headStart)
}

// await waits for the end of a set-up. It returns nil after d, unless that is zero.
func (l *Listener) await(ctx context.Context, d time.Duration) (*setup, error) {
	var enough <-chan time.Time
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		enough = t.C
	}
	select {
	case s := <-l.ended:
		l.underWay--
		return &s, nil
	case <-enough:
		return nil, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// begin begins to set up the connection that somebody has asked for.
func (l *Listener) begin(c *via.Connection) {
	l.underWay++
	go func() {
		e, err := l.accept(c)
		if err != nil {
			reject(c)
		}
		l.ended <- setup{e, c.Remote, err}
	}()
}

// accept accepts a request. The NIC ends it if the client does not answer.
func (l *Listener) accept(c *via.Connection) (*Endpoint, error) {
	o, err := l.Options(c.Remote)
	if err != nil {
		return nil, err
	}
	e, err := idle(l.ctx, l.NIC, o)
	if err != nil {
		return nil, err
	}
	// A reliable sender waits for a receive, so that only clients that have been
	// heard take memory. What comes to an unreliable VI without one is lost.
	furnished := o.Reliability == via.Unreliable
	if furnished {
		err = e.furnish(l.ctx, l.NIC, o)
	}
	if err == nil {
		_, err = c.Accept(l.ctx, e.vi)
	}
	if err == nil && !furnished {
		err = e.furnish(l.ctx, l.NIC, o)
	}
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// reject turns a request down unless it has ended by itself.
func reject(c *via.Connection) {
	ctx, cancel := context.WithTimeout(context.Background(), parting)
	defer cancel()
	// An error says that there is nobody left to tell.
	_ = c.Reject(ctx)
}

// Close sends clients away that Accept has not returned. The listener must not be
// used afterwards.
func (l *Listener) Close() error {
	if l.ended == nil {
		return nil
	}
	l.cancel()
	var errs []error
	for ; l.underWay > 0; l.underWay-- {
		if s := <-l.ended; s.endpoint != nil {
			errs = append(errs, s.endpoint.Close())
		}
	}
	return errors.Join(errs...)
}
