package via

import (
	"net"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// Tell is what a handler of n would be given for an event of the driver.
func (n *NIC) Tell(e datasheet.Event) AsyncError { return n.asyncError(e) }

// AskWith has n ask r instead of the system's DNS.
func (n *NIC) AskWith(r *net.Resolver) { n.UseNames(DNSNames(r)) }
