package via

import (
	"context"
	"errors"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/via/internal/hosts"
)

// Address is where a connection request goes: the MAC of a NIC, and a Discriminator
// of 0 to MaxDiscriminator bytes, which is a connection point within its host.
//
// Another process gets it as text: Address.String writes it, as in
// 02:00:00:00:00:01/echo, and ParseAddress reads it. Listener.Address is the one to write.
// A program that does not know the MAC dials Broadcast.
type Address = driver.Address

// Broadcast is the MAC of an Address for any NIC on the wire: the one that answers first
// is connected with.
var Broadcast = descriptors.Broadcast

// ParseAddress reads what Address.String writes: a MAC and, behind a slash, a
// discriminator, in which Go's escapes stand for bytes that are no plain text. Quotes
// around it may be left out. It fails with ErrInvalidParameter.
func ParseAddress(s string) (Address, error) {
	h, err := hosts.ParseHost(s)
	if err != nil {
		return Address{}, &Error{Op: "parse address", Code: ErrInvalidParameter, Err: err}
	}
	return address(h), nil
}

// DialStream connects with the program that listens at address, such as
// "02:00:00:00:00:01/echo" or, whatever NIC it has, "ff:ff:ff:ff:ff:ff/echo", and makes a
// Stream of the connection, which is a net.Conn. Listener.Streams is the other end. Its
// errors are those of ParseAddress and Dial.
func DialStream(ctx context.Context, n *NIC, address string) (*Stream, error) {
	a, err := ParseAddress(address)
	if err != nil {
		return nil, err
	}
	c, err := Dial(ctx, n, a)
	if err != nil {
		return nil, err
	}
	s, err := c.Stream()
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return s, nil
}
