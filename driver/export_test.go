package driver

import (
	"context"

	"github.com/trapeze-nic/trapeze/descriptors"
)

// PtagOf is a ptag with a number that no device has given out.
func PtagOf(n *NIC, number uint32) *Ptag { return &Ptag{n: n, number: number} }

// StateOf asks the device for the state of a VI.
func StateOf(ctx context.Context, v *VI) (EndpointState, error) { return v.endpoint.Query(ctx) }

// Own makes d, which was not posted yet, a descriptor that only v takes.
func (v *VI) Own(d *descriptors.Descriptor) { d.Post().Owner = v.key }

// Queue is the VI by which the NIC has q.
func (q *ReceiveQueue) Queue() *VI { return q.v }

// EagerCounts are what the driver counts of eager memory.
func (n *NIC) EagerCounts() EagerStats { return n.eagerCounts() }
