package via

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// ListenConfig has the choices of Listen. Its zero value is what Listen uses.
type ListenConfig struct {
	// Options is given what the other side has and returns what this side wants, or
	// why the request is to be rejected; MaxMessage and Reliability are the other
	// side's whatever it returns. Nil takes every reliable connection, with
	// DefaultConnDepth messages in each direction, or as many as 8 MiB hold. It may be
	// called from several goroutines, and may wait: only its own client waits for it.
	Options func(Remote) (ConnOptions, error)
	// Backlog is how many connections may be set up or wait for Accept; zero is
	// DefaultBacklog. While there are so many, others are told that nobody listens,
	// and Dial tries again.
	Backlog int
	// Limit, if not zero, is how many connections are taken in all. Those that come
	// later are told that nobody listens.
	Limit int
	// Refused, if not nil, is told of requests that came to nothing.
	Refused func(Remote, error)
}

// DefaultBacklog is the backlog of a Listener if nothing else is said.
const DefaultBacklog = 64

const (
	// headStart is how long a client has the listener for itself. One that lives needs
	// a part of it, so that a listener with a limit does not connect others that it
	// then has to send away.
	headStart = 100 * time.Millisecond
	// afterRefusal is the pause after a request that came to nothing, so that a flood
	// of them does not keep the listener busy.
	afterRefusal = 10 * time.Millisecond
)

// mostBuffered is how many bytes of buffers a connection has for each direction if the
// listener does not say.
const mostBuffered = 8 << 20

// Listener takes connections at one discriminator of a NIC. A client that does not
// answer keeps nobody from being connected. Its methods may be called from several
// goroutines.
type Listener struct {
	nic     *NIC
	address Address
	config  ListenConfig
	ctx     context.Context // ends with Close
	cancel  context.CancelCauseFunc
	places  chan struct{} // one taken for each connection of the backlog
	ready   chan *Conn
	running sync.WaitGroup
	closed  atomic.Bool

	mu    sync.Mutex
	taken int
	asks  context.CancelFunc // ends the waiting for requests
}

// Listen takes connections at discriminator, 0 to MaxDiscriminator bytes of the
// application's choice, until the listener is closed.
func Listen(n *NIC, discriminator []byte) (*Listener, error) {
	return new(ListenConfig).Listen(n, discriminator)
}

// Listen is the function Listen with the choices of lc.
func (lc *ListenConfig) Listen(n *NIC, discriminator []byte) (*Listener, error) {
	const op = "listen"
	if err := n.check(context.Background(), op); err != nil {
		return nil, err
	}
	if err := n.checkDiscriminators(op, discriminator); err != nil {
		return nil, err
	}
	l := &Listener{nic: n, address: Address{MAC: n.attributes.Address, Discriminator: discriminator}, config: *lc}
	if l.config.Backlog == 0 {
		l.config.Backlog = min(DefaultBacklog, n.attributes.MaxVIs)
	}
	if l.config.Backlog < 0 || l.config.Backlog > n.attributes.MaxVIs || l.config.Limit < 0 {
		return nil, n.refuse(op, ErrInvalidParameter, "", "Backlog is %d, it may be 1 to %d; Limit is %d", l.config.Backlog, n.attributes.MaxVIs, l.config.Limit)
	}
	if l.config.Options == nil {
		l.config.Options = anyReliable
	}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	l.places = make(chan struct{}, l.config.Backlog)
	l.ready = make(chan *Conn, l.config.Backlog)
	asking, stop := context.WithCancel(l.ctx)
	l.asks = stop
	l.running.Go(func() { l.ask(asking) })
	return l, nil
}

func anyReliable(r Remote) (ConnOptions, error) {
	if r.Reliability == Unreliable {
		return ConnOptions{}, ErrInvalidReliability
	}
	depth := min(DefaultConnDepth, max(1, mostBuffered/int(max(r.MaxTransfer, 1))))
	return ConnOptions{SendDepth: depth, RecvDepth: depth}, nil
}

// ask waits for requests while there is a place for them.
func (l *Listener) ask(ctx context.Context) {
	for {
		select {
		case l.places <- struct{}{}:
		case <-ctx.Done():
			return
		}
		request, err := l.nic.ConnectWait(ctx, l.address.Discriminator)
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
func (l *Listener) serve(request *Connection, answered chan<- struct{}) {
	c, err := l.connect(l.ctx, request)
	if err == nil && !l.take() {
		err = errors.Join(ErrReject, c.Close())
	}
	close(answered)
	if err == nil {
		l.ready <- c // there is a place
		return
	}
	defer func() { <-l.places }()
	reject(request)
	if errors.Is(err, ErrDevice) {
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
func (l *Listener) take() bool {
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

func (l *Listener) connect(ctx context.Context, request *Connection) (*Conn, error) {
	o, err := l.config.Options(request.Remote)
	if err != nil {
		return nil, err
	}
	o.Reliability, o.MaxMessage = request.Remote.Reliability, int(request.Remote.MaxTransfer)
	c, err := newConn(ctx, l.nic, o)
	if err != nil {
		return nil, err
	}
	c.local = l.address
	remote, err := request.Accept(ctx, c.vi)
	if err == nil {
		err = c.start(ctx, remote, Address{MAC: request.Remote.MAC, Discriminator: request.Discriminator})
	}
	if err != nil {
		return nil, errors.Join(err, c.free())
	}
	return c, nil
}

// reject turns a request down unless it has ended by itself.
func reject(request *Connection) {
	ctx, cancel := context.WithTimeout(context.Background(), parting)
	defer cancel()
	// An error says that there is nobody left to tell.
	_ = request.Reject(ctx)
}

// Accept waits for the next connection. It fails with ErrClosed once the listener is
// closed, and with what is wrong with the NIC.
func (l *Listener) Accept(ctx context.Context) (*Conn, error) {
	const op = "accept"
	if err := l.nic.check(ctx, op); err != nil {
		return nil, err
	}
	select {
	case c := <-l.ready:
		<-l.places
		return c, nil
	case <-ctx.Done():
		return nil, l.nic.fail(op, ctx.Err())
	case <-l.ctx.Done():
		return nil, context.Cause(l.ctx)
	}
}

// Address to dial.
func (l *Listener) Address() Address { return l.address }

// Close ends the listening, and the connections that wait for Accept. Those that were
// accepted go on. Closing again fails with ErrClosed.
func (l *Listener) Close() error {
	closed := l.nic.refuse("listen", ErrClosed, "", "")
	if l.closed.Swap(true) {
		return closed
	}
	l.cancel(closed)
	l.running.Wait()
	var errs []error
	for {
		select {
		case c := <-l.ready:
			errs = append(errs, c.Close())
		default:
			return errors.Join(errs...)
		}
	}
}

// Streams is the listener as a net.Listener, whose connections are Streams. Only
// reliable connections should be accepted: others are closed.
func (l *Listener) Streams() net.Listener { return streamListener{l} }

type streamListener struct{ *Listener }

func (l streamListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept(context.Background())
	if err != nil {
		return nil, l.error("accept", err)
	}
	s, err := c.Stream()
	if err != nil {
		return nil, l.error("accept", errors.Join(err, c.Close()))
	}
	return s, nil
}

func (l streamListener) Close() error { return l.error("close", l.Listener.Close()) }

func (l streamListener) Addr() net.Addr { return l.address }

func (l streamListener) error(op string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, ErrClosed) {
		err = net.ErrClosed
	}
	return &net.OpError{Op: op, Net: l.address.Network(), Addr: l.address, Err: err}
}
