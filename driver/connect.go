package driver

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// Connection is a request of another host to be connected with a VI here. It
// waits until it is accepted or rejected, or the other side gives up.
type Connection struct {
	// Remote is who asks, and the attributes of the VI there. A VI that is to
	// accept must have the same reliability level and maximum transfer size.
	Remote Remote
	// Discriminator is the other side's name for its own end.
	Discriminator string

	n      *NIC
	number uint32
	// busy while a call is in progress, settled once it has been answered; both
	// guarded by the NIC's mutex.
	busy, settled bool
}

// ConnectRequest connects an idle VI, ring or channel with one at the remote address, where
// a program must wait in ConnectWait. local is this side's name for its own end,
// 0 to MaxDiscriminator bytes; the other side sees it. It waits for the answer until ctx
// ends. Errors: ErrTimeout,
// ErrReject, ErrNoMatch, ErrNotReachable, ErrInvalidState, ErrInvalidReliability, ErrInvalidMTU; and
// ErrInvalidParameter if no time is left at the start, as VIA asks for. It
// is idle again then. Of calls of ConnectRequest 512 are with the device at a
// time; more wait for their turn. The same goes for Accept and for ConnectWait, each
// for itself.
func (e *endpoint) ConnectRequest(ctx context.Context, remote Address, local string) (Remote, error) {
	return get(ctx, e.do, "connect request", func() (none Remote, _ error) {
		if err := e.checkPeer(); err != nil {
			return none, err
		}
		return e.request(ctx, remote, local)
	})
}

// request is ConnectRequest of an endpoint that is in use.
func (e *endpoint) request(ctx context.Context, remote Address, local string) (none Remote, _ error) {
	if err := ctx.Err(); errors.Is(err, context.DeadlineExceeded) {
		return none, hinted(fmt.Errorf("%w: no time to connect in: %w", descriptors.ErrInvalidParameter, err), "give it a context with time left")
	}
	to, err := discriminator(remote.Discriminator)
	if err != nil {
		return none, err
	}
	from, err := discriminator(local)
	if err != nil {
		return none, err
	}
	return e.connect(ctx, classRequest, newCommand(datasheet.OpConnectRequest, datasheet.ConnectRequestBody{
		Endpoint: e.number, TimeoutMS: timeoutMS(ctx), RemoteMAC: remote.MAC, Remote: to, Local: from,
	}))
}

// connect carries out a command that connects the endpoint. One that cannot be connected
// because its last connection has ended says how.
func (e *endpoint) connect(ctx context.Context, class class, cmd *datasheet.Command) (Remote, error) {
	before := e.ending.begin()
	reply, err := e.n.connect(ctx, class, cmd, &e.leaving)
	if err != nil {
		e.ending.undo(before)
		if end := e.ending.code(); end != 0 && errors.Is(err, descriptors.ErrInvalidState) {
			err = fmt.Errorf("%w: %w", err, end)
		}
		return Remote{}, err
	}
	r := datasheet.Reply[datasheet.ConnectedReply](reply)
	return remote(r.RemoteMAC, r.RemoteEndpoint, r.MaxTransfer, r.Reliability, r.RemoteRights), nil
}

// Disconnect ends the connection: all descriptors that are still queued complete
// with StatusFlushed, in order, and the VI is idle again. The other side gets
// ErrDisconnected; on a reliable VI ErrConnectionBroken if it has not taken all that
// was posted here: wait for the sends first. Disconnect is also the only way out of
// the error state. On an idle VI it flushes what is queued.
func (e *endpoint) Disconnect(ctx context.Context) error {
	if ctx != nil {
		e.endPeer()
	}
	return e.do(ctx, "disconnect", func() error {
		_, err := e.execute(ctx, newCommand(datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: e.number}))
		if err == nil {
			e.ending.local()
		}
		return err
	})
}

// ConnectWait waits for a request to connect with local, a discriminator of 0 to
// MaxDiscriminator bytes, until ctx ends. Nothing is connected until the request is accepted.
func (n *NIC) ConnectWait(ctx context.Context, local string) (*Connection, error) {
	return get(ctx, n.do, "wait for a connection", func() (*Connection, error) {
		at, err := discriminator(local)
		if err != nil {
			return nil, err
		}
		reply, err := n.connect(ctx, classWait, newCommand(datasheet.OpConnectWait, datasheet.ConnectWaitBody{TimeoutMS: timeoutMS(ctx), Local: at}), nil)
		if err != nil {
			return nil, err
		}
		r := datasheet.Reply[datasheet.ConnectionReply](reply)
		if int(r.Remote.Len) > len(r.Remote.Data) {
			return nil, fmt.Errorf("%w: discriminator of %d bytes", ErrProtocol, r.Remote.Len)
		}
		return &Connection{n: n, number: r.Connection, Remote: remote(r.RemoteMAC, 0, r.MaxTransfer, r.Reliability, r.RemoteRights),
			Discriminator: string(r.Remote.Data[:r.Remote.Len])}, nil
	})
}

// Accept connects an idle VI, ring or channel with the one that asked, of the same kind. If the two differ in
// an attribute that must be the same (ErrInvalidReliability, ErrInvalidMTU), or
// this one cannot be connected (ErrInvalidState), the other side is told nothing and
// the request goes on waiting: offer another VI, or reject it. With any other error
// it is over. ErrWithdrawn is a client that no longer waits; ErrPeerLost one that
// has died since it asked, which a NIC knows after 3 s, whatever ctx says.
func (c *Connection) Accept(ctx context.Context, to Endpoint) (Remote, error) {
	const op = "accept"
	if to == nil || reflect.ValueOf(to).IsNil() || to.end().n != c.n {
		return Remote{}, c.n.refuse(op, fmt.Errorf("%w: not an endpoint of this NIC", descriptors.ErrInvalidParameter), "create it on the NIC that waited")
	}
	e := to.end()
	return get(ctx, e.do, op, func() (none Remote, _ error) {
		if err := e.checkPeer(); err != nil {
			return none, err
		}
		return c.accept(ctx, e)
	})
}

// accept is Accept for an endpoint that is in use.
func (c *Connection) accept(ctx context.Context, e *endpoint) (r Remote, err error) {
	if err = c.claim(); err != nil {
		return r, err
	}
	r, err = e.connect(ctx, classAccept, newCommand(datasheet.OpConnectAccept, datasheet.ConnectAcceptBody{
		Connection: c.number, Endpoint: e.number, TimeoutMS: timeoutMS(ctx),
	}))
	c.settle(err == nil)
	return r, err
}

// Reject turns the request down; the other side gets ErrReject, unless it no longer
// waits: ErrWithdrawn.
func (c *Connection) Reject(ctx context.Context) error {
	return c.n.do(ctx, "reject", func() error {
		if err := c.claim(); err != nil {
			return err
		}
		_, err := c.n.execute(ctx, newCommand(datasheet.OpConnectReject, datasheet.ConnectRejectBody{Connection: c.number}))
		c.settle(err == nil)
		return err
	})
}

// claim keeps two goroutines from answering one request, and any from answering
// it again; settle ends the claim.
func (c *Connection) claim() error {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	if c.settled || c.busy {
		return fmt.Errorf("%w: the request has been answered", descriptors.ErrClosed)
	}
	c.busy = true
	return nil
}

func (c *Connection) settle(answered bool) {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	c.busy, c.settled = false, answered
}
