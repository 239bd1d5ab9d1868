package via

import (
	"context"
	"errors"
	"net"
	"time"
)

// Dialer has the choices of Dial. Its zero value is what Dial uses.
type Dialer struct {
	ConnOptions
	// Local is what this side calls its own end, 0 to MaxDiscriminator bytes; the
	// other side sees it.
	Local []byte
}

// Dial connects with whoever listens at address. If nobody does, it tries again until
// ctx ends, which must happen at some time: its error then matches ErrTimeout, and
// ErrNoMatch if the NIC was there and nobody listened.
func Dial(ctx context.Context, n *NIC, address Address) (*Conn, error) {
	return new(Dialer).Dial(ctx, n, address)
}

// How Dial tries: for so long each time, so that a peer that has been started
// meanwhile is asked afresh, and with a pause between that grows.
const (
	attempt    = 2 * time.Second
	firstPause = time.Millisecond
	lastPause  = 100 * time.Millisecond
)

// Dial is the function Dial with the choices of d.
func (d *Dialer) Dial(ctx context.Context, n *NIC, address Address) (*Conn, error) {
	if err := n.check(ctx, "dial"); err != nil {
		return nil, err
	}
	c, err := newConn(ctx, n, d.ConnOptions)
	if err != nil {
		return nil, err
	}
	remote, err := c.connect(ctx, address, d.Local)
	if err == nil {
		c.local = Address{MAC: n.attributes.Address, Discriminator: d.Local}
		address.MAC = remote.MAC
		err = c.start(ctx, remote, address)
	}
	if err != nil {
		return nil, errors.Join(err, c.free())
	}
	return c, nil
}

func (c *Conn) connect(ctx context.Context, address Address, local []byte) (Remote, error) {
	pause := firstPause
	var last error // what an attempt met that ctx has not cut short
	for {
		r, err := c.try(ctx, address, local)
		if err == nil {
			return r, nil
		}
		cause := context.Cause(ctx)
		if cause == nil && !errors.Is(err, ErrTimeout) && !errors.Is(err, ErrNoMatch) && !errors.Is(err, ErrNotReachable) {
			return r, err
		}
		if last == nil || !errors.Is(err, ErrTimeout) {
			last = err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
			pause = min(2*pause, lastPause)
		case <-ctx.Done():
			timer.Stop()
			return r, c.nobody(ctx, last)
		}
	}
}

func (c *Conn) try(ctx context.Context, address Address, local []byte) (Remote, error) {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	return c.vi.ConnectRequest(ctx, address, local)
}

// nobody says why ctx has ended and what the last attempt met.
func (c *Conn) nobody(ctx context.Context, last error) error {
	cause := context.Cause(ctx)
	if !errors.Is(cause, context.DeadlineExceeded) {
		return c.vi.nic.fail("dial", cause)
	}
	hint := "start the other side; check the address and both ends' wires"
	switch {
	case errors.Is(last, ErrNoMatch):
		return c.vi.nic.refuse("dial", ErrTimeout, hint, "%w: the NIC there is up, but no program waits for this", ErrNoMatch)
	case errors.Is(last, ErrNotReachable):
		return c.vi.nic.refuse("dial", ErrTimeout, hint, "%w", ErrNotReachable)
	}
	return c.vi.nic.refuse("dial", ErrTimeout, hint, "nobody answered: %w", context.DeadlineExceeded)
}

var _ net.Addr = Address{}

// LocalAddr is this end's Address.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr is the other end's Address.
func (c *Conn) RemoteAddr() net.Addr { return c.address }
