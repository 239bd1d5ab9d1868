package via

import (
	"context"

	"github.com/trapeze-nic/trapeze/driver"
)

// Connection is a request of another host to be connected with a VI here. It
// waits until it is accepted or rejected, or the other side gives up.
type Connection struct {
	// Remote is who asks, and the attributes of the VI there. A VI that is to
	// accept must have the same reliability level and maximum transfer size.
	Remote Remote
	// Discriminator is the other side's name for its own end.
	Discriminator string

	nic *NIC
	d   *driver.Connection
}

// ConnectRequest connects an idle VI with one at the remote address, where
// a program must wait in ConnectWait. local is this side's name for its own end,
// 0 to MaxDiscriminator bytes; the other side sees it. Errors: ErrTimeout,
// ErrReject, ErrNoMatch, ErrNotReachable, ErrInvalidState; and
// ErrInvalidParameter if no time is left at the start, as VIA asks for.
func (v *VI) ConnectRequest(ctx context.Context, remote Address, local string) (Remote, error) {
	const op = "connect request"
	if err := v.nic.acquire(op, &v.object); err != nil {
		return Remote{}, err
	}
	defer v.nic.release(&v.object)
	if err := v.checkPeer(op); err != nil {
		return Remote{}, err
	}
	return v.d.ConnectRequest(ctx, remote, local)
}

// Disconnect ends the connection: all descriptors that are still queued complete
// with StatusFlushed, in order, and the VI is idle again. The other side gets
// ErrDisconnected; on a reliable VI ErrConnectionBroken if it has not taken all that
// was posted here: wait for the sends first. Disconnect is also the only way out of
// the error state. On an idle VI it flushes what is queued.
func (v *VI) Disconnect(ctx context.Context) error {
	if err := v.nic.acquire("disconnect", &v.object); err != nil {
		return err
	}
	defer v.nic.release(&v.object)
	if ctx != nil {
		v.endPeer()
	}
	return v.d.Disconnect(ctx)
}

// ConnectWait waits for a request to connect with local, a discriminator of 0 to
// MaxDiscriminator bytes. Nothing is connected until the request is accepted.
func (n *NIC) ConnectWait(ctx context.Context, local string) (*Connection, error) {
	d, err := n.d.ConnectWait(ctx, local)
	if err != nil {
		return nil, err
	}
	return &Connection{Remote: d.Remote, Discriminator: d.Discriminator, nic: n, d: d}, nil
}

func (n *NIC) checkDiscriminators(op string, ds ...string) error {
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
	if v == nil {
		return Remote{}, c.nic.refuse(op, ErrInvalidParameter, "", "the VI is nil")
	}
	if err := c.nic.acquire(op, &v.object); err != nil {
		return Remote{}, err
	}
	defer c.nic.release(&v.object)
	if err := v.checkPeer(op); err != nil {
		return Remote{}, err
	}
	return c.d.Accept(ctx, v.d)
}

// Reject turns the request down; the other side gets ErrReject, unless it no longer
// waits: ErrWithdrawn.
func (c *Connection) Reject(ctx context.Context) error { return c.d.Reject(ctx) }
