package via

import (
	"context"
	"errors"
	"net"

	"github.com/trapeze-nic/trapeze/driver"
)

// ListenOptions are choices of Listen. The zero value is good.
type ListenOptions struct {
	// Conn is given what the other side has and returns what this side wants, or
	// why the request is to be rejected; MaxMessage and Reliability are the other
	// side's whatever it returns. Nil takes every reliable connection, with
	// DefaultConnDepth messages in each direction, or as many as 8 MiB hold. It may be
	// called from several goroutines, and may wait: only its own client waits for it.
	Conn func(Remote) (ConnOptions, error)
	// Backlog is the number of connections that may be set up or wait for Accept; zero is
	// DefaultBacklog. While there are so many, others are told that there is no listener,
	// and Dial tries again.
	Backlog int
	// Limit, if not zero, is the number of connections that are taken in all. Those that come
	// later are told that there is no listener.
	Limit int
	// Refused, if not nil, is told of requests that came to nothing.
	Refused func(Remote, error)
}

// DefaultBacklog is the backlog of a Listener if nothing else is said.
const DefaultBacklog = driver.DefaultBacklog

// mostBuffered is the size of a connection's buffers in bytes, for each direction, if the
// listener does not say. One message may have twice that.
const mostBuffered = 8 << 20

// Listener takes connections at one name of a NIC. A client that does not answer keeps no
// other from being connected. Its methods may be called from several goroutines.
type Listener struct{ *driver.Listener[*Conn] }

// Listen takes connections at name, 0 to MaxDiscriminator bytes of the application's
// choice, until the listener is closed. It fails with ErrAddressInUse if another listener
// of the NIC has the name, and with ErrInvalidParameter, which names the field, for
// options out of their range.
func Listen(n *NIC, name string, o ListenOptions) (*Listener, error) {
	if err := n.check(context.Background(), "listen"); err != nil {
		return nil, err
	}
	options := o.Conn
	if options == nil {
		options = anyReliable
	}
	at := Address{MAC: n.Query().Address, Discriminator: name}
	c := driver.ListenConfig[*Conn]{Backlog: o.Backlog, Limit: o.Limit, Close: (*Conn).Close,
		Connect: func(ctx context.Context, request *Connection) (*Conn, error) {
			return n.connect(ctx, request, at, options)
		}}
	if o.Refused != nil {
		c.Refused = func(request *Connection, err error) { o.Refused(request.Remote, err) }
	}
	l, err := driver.Listen(n.NIC, name, c)
	if err != nil {
		return nil, err
	}
	return &Listener{l}, nil
}

func anyReliable(r Remote) (ConnOptions, error) {
	if r.Reliability == Unreliable {
		return ConnOptions{}, ErrInvalidReliability
	}
	if r.MaxTransfer > 2*mostBuffered {
		return ConnOptions{}, ErrInvalidMTU
	}
	depth := min(DefaultConnDepth, max(1, mostBuffered/int(max(r.MaxTransfer, 1))))
	return ConnOptions{SendDepth: depth, RecvDepth: depth}, nil
}

// connect sets up the connection that a client asks for at this address.
func (n *NIC) connect(ctx context.Context, request *Connection, at Address, options func(Remote) (ConnOptions, error)) (*Conn, error) {
	o, err := options(request.Remote)
	if err != nil {
		return nil, err
	}
	o.Reliability, o.MaxMessage = request.Remote.Reliability, int(request.Remote.MaxTransfer)
	c, err := newConn(ctx, n, o)
	if err != nil {
		return nil, err
	}
	c.local = at
	remote, err := request.Accept(ctx, c.vi)
	if err == nil {
		err = c.start(ctx, remote, Address{MAC: request.Remote.MAC, Discriminator: request.Discriminator})
	}
	if err != nil {
		return nil, errors.Join(err, c.free())
	}
	return c, nil
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

func (l streamListener) Addr() net.Addr { return l.Address() }

func (l streamListener) error(op string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, ErrClosed) {
		err = net.ErrClosed
	}
	return &net.OpError{Op: op, Net: l.Address().Network(), Addr: l.Address(), Err: err}
}
