package drivercost

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// Rung returns what was stored last to the doorbell of the send queue: how many descriptors have
// been posted.
func (r *Rig) Rung() uint32 {
	at := datasheet.EndpointPage(r.vi.Number()) + datasheet.DoorbellSend
	return datasheet.LoadIndex(datasheet.IndexAt(r.device.doorbells.Bytes()[at:]))
}
