package via

import (
	"context"
	"errors"
	"net"

	"github.com/trapeze-nic/trapeze/driver"
)

// ErrAddressInUse refines ErrResource: another listener of the NIC has the name that Listen
// was given, be it one of this package, of ring or of channel.
var ErrAddressInUse = driver.ErrAddressInUse

// DialTimeout limits Dial if its context has no deadline. It holds for package
// ring and package channel too.
const DialTimeout = driver.DialTimeout

// Dial connects with the program that listens at address, such as "alpha:echo",
// "02:00:00:00:00:01/echo" or, whatever NIC it has, "ff:ff:ff:ff:ff:ff/echo": see
// NIC.Resolve. While no program listens there, it tries again until ctx ends, or for
// DialTimeout if ctx has no deadline. Its error then matches ErrTimeout, and ErrNoMatch if
// the NIC was there and no program listened. It fails with ErrPathMTU if the path does not
// carry frames as large as the MTU.
func Dial(ctx context.Context, n *NIC, address string, o ConnOptions) (*Conn, error) {
	to, err := n.Resolve(ctx, address)
	if err != nil {
		return nil, err
	}
	c, err := newConn(ctx, n, o)
	if err != nil {
		return nil, err
	}
	remote, err := c.vi.Dial(ctx, to, o.Local)
	if err == nil {
		c.local = Address{MAC: n.Query().Address, Discriminator: o.Local}
		to.MAC = remote.MAC
		err = c.start(ctx, remote, to)
	}
	if err != nil {
		return nil, errors.Join(err, c.free())
	}
	return c, nil
}

// DialStream connects as Dial does, with the default ConnOptions, and returns the connection's
// Stream as a net.Conn: for the DialContext of an http.Transport, and for all that reads and
// writes over TCP. The deadline of ctx holds for the connecting only.
func DialStream(ctx context.Context, n *NIC, address string) (net.Conn, error) {
	c, err := Dial(ctx, n, address, ConnOptions{})
	if err != nil {
		return nil, err
	}
	return c.Stream()
}

var _ net.Addr = Address{}

// LocalAddr is this end's Address.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr is the other end's Address.
func (c *Conn) RemoteAddr() net.Addr { return c.address }
