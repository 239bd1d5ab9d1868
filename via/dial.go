package via

import (
	"context"
	"errors"
	"net"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/via/connecting"
)

// ErrAddressInUse refines ErrResource: another listener of the NIC has the name that Listen
// was given, be it one of this package, of ring or of channel.
var ErrAddressInUse = driver.ErrAddressInUse

// Dialer has the choices of Dial. Its zero value is what Dial uses.
type Dialer struct {
	ConnOptions
	// Local is what this side calls its own end, 0 to MaxDiscriminator bytes; the
	// other side sees it.
	Local []byte
}

// DialTimeout is how long Dial tries if its context has no deadline. It holds for package
// ring and package channel too.
const DialTimeout = connecting.Patience

// Dial connects with the program that listens at address. While none does, it tries again
// until ctx ends, or for DialTimeout if ctx has no deadline: its error then matches
// ErrTimeout, and ErrNoMatch if the NIC was there and no program listened. It fails with
// ErrPathMTU if the path does not carry frames as large as the MTU.
func Dial(ctx context.Context, n *NIC, address Address) (*Conn, error) {
	return new(Dialer).Dial(ctx, n, address)
}

// Dial is the function Dial with the choices of d.
func (d *Dialer) Dial(ctx context.Context, n *NIC, address Address) (*Conn, error) {
	if err := n.check(ctx, "dial"); err != nil {
		return nil, err
	}
	c, err := newConn(ctx, n, d.ConnOptions)
	if err != nil {
		return nil, err
	}
	remote, err := connecting.Dial(ctx, n.attributes.Name, address, func(ctx context.Context) (Remote, error) {
		return c.vi.ConnectRequest(ctx, address, d.Local)
	})
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

var _ net.Addr = Address{}

// LocalAddr is this end's Address.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr is the other end's Address.
func (c *Conn) RemoteAddr() net.Addr { return c.address }
