package driver

import (
	"fmt"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// Address is where a connection request goes: a NIC, and a connection point
// within its host.
type Address struct {
	MAC datasheet.MAC
	// Discriminator is 0 to datasheet.MaxDiscriminator bytes of the application's
	// choice.
	Discriminator string
}

// Network is "via".
func (a Address) Network() string { return "via" }

// String has the NIC's address and, behind a slash and quoted if need be, the
// discriminator, as in 02:00:00:00:00:01/echo. via.ParseAddress reads it back.
func (a Address) String() string {
	if len(a.Discriminator) == 0 {
		return a.MAC.String()
	}
	return fmt.Sprintf("%v/%s", a.MAC, printable(a.Discriminator))
}

// printable quotes what is no plain text.
func printable(name string) string {
	q := fmt.Sprintf("%+q", name)
	if plain := q[1 : len(q)-1]; plain == name {
		return plain
	}
	return q
}

// Remote describes the other end of a connection or of a request for one.
type Remote struct {
	MAC datasheet.MAC
	// VI is the number of the VI at the other end; zero if not known yet.
	VI uint32
	// MaxTransfer in bytes.
	MaxTransfer uint32
	Reliability datasheet.Reliability
	// RDMAWrite and RDMARead say what the other end lets this one do.
	RDMAWrite, RDMARead bool
}

// remote says who is at an address, and the rights that it grants.
func remote(mac datasheet.MAC, vi, maxTransfer uint32, level datasheet.Reliability, rights datasheet.Access) Remote {
	return Remote{MAC: mac, VI: vi, MaxTransfer: maxTransfer, Reliability: level,
		RDMAWrite: rights&datasheet.AccessRDMAWrite != 0, RDMARead: rights&datasheet.AccessRDMARead != 0}
}

// discriminator lays out name for a command.
func discriminator(name string) (datasheet.Discriminator, error) {
	var d datasheet.Discriminator
	if len(name) > len(d.Data) {
		return d, hinted(fmt.Errorf("%w: discriminator of %d bytes", descriptors.ErrInvalidParameter, len(name)),
			fmt.Sprintf("use at most %d", len(d.Data)))
	}
	d.Len = uint8(copy(d.Data[:], name))
	return d, nil
}
