package engine

import (
	"testing"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// TestKinds: each kind that the data sheet knows has registered, and those that need device memory
// are refused without.
func TestKinds(t *testing.T) {
	e := &Engine{}
	e.vis = newTransport(&e.core)
	newRings(e.vis)
	e.cells = newCells(e.vis, Cells{})
	for _, sram := range [][]byte{nil, make([]byte, datasheet.PageSize)} {
		e.core.regions.sram.bytes = sram
		for id := range datasheet.Kind(len(e.core.kinds) + 1) {
			want := refusal{datasheet.ResultInvalidParameter, fieldKind}
			switch id {
			case datasheet.KindRing, datasheet.KindChannel:
				want = refusal{datasheet.ResultNotSupported, fieldKind}
				if sram != nil { // its own check is asked
					want = refusal{datasheet.ResultInvalidMTU, fieldMaxTransfer}
				}
				if sram != nil && id == datasheet.KindChannel {
					want = refusal{datasheet.ResultInvalidParameter, fieldSendLog2}
				}
			case datasheet.KindVI, datasheet.KindFrame, datasheet.KindReceiveQueue:
				continue
			}
			if _, why := e.kindOf(&datasheet.CreateEndpointBody{Kind: id, Reliability: datasheet.Unreliable}); why != want {
				t.Errorf("kind %v, %d bytes of device memory: %+v, not %+v", id, len(sram), why, want)
			}
		}
	}
	for _, id := range []datasheet.Kind{datasheet.KindVI, datasheet.KindRing} {
		if _, ok := e.core.kinds[id].deliver(datasheet.Unreliable).(unreliableVI); !ok {
			t.Errorf("%v: what is not acknowledged is delivered otherwise", id)
		}
		if _, ok := e.core.kinds[id].deliver(datasheet.ReliableDelivery).(reliableVI); !ok {
			t.Errorf("%v: what is acknowledged is delivered otherwise", id)
		}
	}
}
