package via

import (
	"context"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
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
var Broadcast = datasheet.Broadcast

// ParseAddress reads what Address.String writes: a MAC and, behind a slash, a
// discriminator, in which Go's escapes stand for bytes that are no plain text. Quotes
// around it may be left out. It fails with ErrInvalidParameter. NIC.Resolve reads names of
// hosts too.
func ParseAddress(s string) (Address, error) {
	a, err := hosts.ParseHost(s)
	if err != nil {
		return Address{}, &Error{Op: "parse address", Code: ErrInvalidParameter, Err: err}
	}
	return a, nil
}

// Resolve returns the first Address of ResolveAll, with which Dial connects.
func (n *NIC) Resolve(ctx context.Context, address string) (Address, error) {
	all, err := n.ResolveAll(ctx, address)
	if err != nil {
		return Address{}, err
	}
	return all[0], nil
}

// ResolveAll returns what address stands for, at least one Address. address is a host and a name
// there, as in "alpha:echo" or "alpha/echo". The host is a MAC, as Address.String writes it, or a
// name for AddressesOf; without a name behind it, the addresses are those that AddressesOf returns.
// It fails as ParseAddress and AddressesOf do.
func (n *NIC) ResolveAll(ctx context.Context, address string) ([]Address, error) {
	const op = "resolve address"
	if err := n.check(ctx, op); err != nil {
		return nil, err
	}
	host, name, err := hosts.Split(address)
	if err != nil {
		return nil, n.Refuse(op, ErrInvalidParameter, "", "%w", err)
	}
	if host == "" {
		a, err := ParseAddress(address)
		if err != nil {
			return nil, err
		}
		return []Address{a}, nil
	}
	all, err := n.AddressesOf(ctx, host)
	if name != "" {
		for i := range all {
			all[i].Discriminator = name
		}
	}
	return all, err
}
