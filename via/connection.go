package via

import (
	"context"
	"errors"
)

// Connection is a request of another host to be connected with a VI here. It
// waits until it is accepted or rejected, or the other side gives up.
type Connection struct {
	// Remote is who asks, and the attributes of the VI there. A VI that is to
	// accept must have the same reliability level and maximum transfer size.
	Remote Remote
	// Discriminator is what the other side calls its own end.
	Discriminator []byte

	nic *NIC
	p   ProviderConnection
	// busy while a call is in progress, settled once it has been answered; both
	// guarded by the NIC's mutex.
	busy, settled bool
}

// ConnectRequest connects an idle VI with one at the remote address, where
// somebody must wait in ConnectWait. local is what this side calls its own end,
// 0 to MaxDiscriminator bytes; the other side sees it. Errors: ErrTimeout,
// ErrReject, ErrNoMatch, ErrNotReachable, ErrInvalidState; and
// ErrInvalidParameter if no time is left at the start, as VIA asks for.
func (v *VI) ConnectRequest(ctx context.Context, remote Address, local []byte) (Remote, error) {
	const op = "connect request"
	n := v.nic
	if err := n.check(ctx, op); err != nil {
		return Remote{}, err
	}
	if err := ctx.Err(); errors.Is(err, context.DeadlineExceeded) {
		return Remote{}, n.refuse(op, ErrInvalidParameter, "give it a context with time left", "no time to connect in: %w", err)
	} else if err != nil {
		return Remote{}, n.refuse(op, ErrCanceled, "", "%w", err)
	}
	if err := n.checkDiscriminators(op, remote.Discriminator, local); err != nil {
		return Remote{}, err
	}
	if err := n.acquire(op, &v.object); err != nil {
		return Remote{}, err
	}
	defer n.release(&v.object)
	r, err := v.p.ConnectRequest(ctx, remote, local)
	return r, n.fail(op, err)
}

// Disconnect ends the connection: all descriptors that are still queued complete
// with StatusFlushed, in order, and the VI is idle again. The other side gets
// ErrDisconnected; on a reliable VI ErrConnectionBroken if it has not taken all that
// was posted here: wait for the sends first. Disconnect is also the only way out of
// the error state. On an idle VI it flushes what is queued.
func (v *VI) Disconnect(ctx context.Context) error {
	const op = "disconnect"
	n := v.nic
	if err := n.check(ctx, op); err != nil {
		return err
	}
	if err := n.acquire(op, &v.object); err != nil {
		return err
	}
	defer n.release(&v.object)
	return n.fail(op, v.p.Disconnect(ctx))
}

// ConnectWait waits for a request to connect with local, a discriminator of 0 to
// MaxDiscriminator bytes. Nothing is connected until the request is accepted.
func (n *NIC) ConnectWait(ctx context.Context, local []byte) (*Connection, error) {
	const op = "wait for a connection"
	if err := n.check(ctx, op); err != nil {
		return nil, err
	}
	if err := n.checkDiscriminators(op, local); err != nil {
		return nil, err
	}
	p, err := n.provider.ConnectWait(ctx, local)
	if err != nil {
		return nil, n.fail(op, err)
	}
	c := &Connection{nic: n, p: p}
	c.Remote, c.Discriminator = p.Remote()
	return c, nil
}

func (n *NIC) checkDiscriminators(op string, ds ...[]byte) error {
	for _, d := range ds {
		if len(d) > MaxDiscriminator {
			return n.refuse(op, ErrInvalidParameter, "", "discriminator of %d bytes, at most %d are allowed", len(d), MaxDiscriminator)
		}
	}
	return nil
}

// Accept connects v, an idle VI, with the one that asked. If the two differ in
// an attribute that must be the same (ErrInvalidReliability, ErrInvalidMTU), or
// v cannot be connected (ErrInvalidState), the other side is told nothing and
// the request goes on waiting: offer another VI, or reject it. With any other error
// it is over. ErrWithdrawn is a client that no longer waits; ErrPeerLost one that
// has died since it asked, which a NIC knows after 3 s, whatever ctx says.
func (c *Connection) Accept(ctx context.Context, v *VI) (Remote, error) {
	const op = "accept"
	n := c.nic
	if err := n.check(ctx, op); err != nil {
		return Remote{}, err
	}
	if v == nil {
		return Remote{}, n.refuse(op, ErrInvalidParameter, "", "the VI is nil")
	}
	if err := n.acquire(op, &v.object); err != nil {
		return Remote{}, err
	}
	defer n.release(&v.object)
	if err := c.begin(op); err != nil {
		return Remote{}, err
	}
	r, err := c.p.Accept(ctx, v.p)
	c.end(err == nil)
	return r, n.fail(op, err)
}

// Reject turns the request down; the other side gets ErrReject, unless it no longer
// waits: ErrWithdrawn.
func (c *Connection) Reject(ctx context.Context) error {
	const op = "reject"
	if err := c.nic.check(ctx, op); err != nil {
		return err
	}
	if err := c.begin(op); err != nil {
		return err
	}
	err := c.p.Reject(ctx)
	c.end(err == nil)
	return c.nic.fail(op, err)
}

// begin keeps two goroutines from answering one request.
func (c *Connection) begin(op string) error {
	c.nic.mu.Lock()
	defer c.nic.mu.Unlock()
	if c.settled || c.busy {
		return c.nic.refuse(op, ErrClosed, "", "the request has been answered")
	}
	c.busy = true
	return nil
}

func (c *Connection) end(settled bool) {
	c.nic.mu.Lock()
	c.busy, c.settled = false, settled
	c.nic.mu.Unlock()
}
