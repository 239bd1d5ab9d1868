package via

import "github.com/trapeze-nic/trapeze/descriptors"

// Tell is what a handler of n would be given for an event of the driver.
func (n *NIC) Tell(e descriptors.Event) AsyncError { return n.asyncError(e) }

// Number by which events name the CQ.
func (c *CQ) Number() uint32 { return c.d.Number() }
