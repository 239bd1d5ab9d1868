package driver_test

import (
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// Where the fake device has the pieces of its ring.
const (
	fakeSend  = 0
	fakeRecv  = 4 * datasheet.RingSlotSize
	fakeTable = 0x600
)

// withRings makes the fake device make rings of 2 entries in its memory, which is mapped.
func withRings(d *fakeDevice) {
	d.set(datasheet.IdentityOffset+datasheet.RegFeaturesLow, uint32(datasheet.FeatureRing))
	d.mapSRAM = true
	d.tamper = func(e *datasheet.AdminEntry) {
		if c := datasheet.Reply[datasheet.EndpointCreated](e); e.Kind == datasheet.EntryReply && c.Endpoint != 0 && d.admin.endpoints[c.Endpoint].Kind == datasheet.KindRing {
			c.Handle, c.Send, c.Recv, c.Table = 77, fakeSend, fakeRecv, fakeTable
		}
	}
}

func ringAttributes() driver.RingAttributes {
	return driver.RingAttributes{Reliability: datasheet.Unreliable, MaxPayload: 4096, SendDepth: 2, RecvDepth: 2}
}
