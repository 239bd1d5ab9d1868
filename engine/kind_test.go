package engine

import (
	"testing"

	"github.com/trapeze-nic/trapeze/engine/internal/channel"
	"github.com/trapeze-nic/trapeze/engine/internal/core"
	"github.com/trapeze-nic/trapeze/engine/internal/ring"
	"github.com/trapeze-nic/trapeze/engine/internal/vi"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// TestKinds: each kind that the data sheet knows has registered, and those that need device memory
// are refused without.
func TestKinds(t *testing.T) {
	e := &Engine{}
	e.vis = vi.New(&e.Core)
	ring.Register(e.vis)
	e.cells = channel.New(e.vis, core.Cells{})
	for _, sram := range [][]byte{nil, make([]byte, datasheet.PageSize)} {
		e.Regions.SRAM.Bytes = sram
		for id := range datasheet.Kind(len(e.Kinds) + 1) {
			b := &datasheet.CreateEndpointBody{Kind: id, Reliability: datasheet.Unreliable}
			want := core.Refusal{Result: datasheet.ResultInvalidParameter, Field: core.Field(b, &b.Kind)}
			switch id {
			case datasheet.KindRing, datasheet.KindChannel:
				want = core.Refusal{Result: datasheet.ResultNotSupported, Field: core.Field(b, &b.Kind)}
				if sram != nil { // its own check is asked
					want = core.Refusal{Result: datasheet.ResultInvalidMTU, Field: core.Field(b, &b.MaxTransfer)}
				}
				if sram != nil && id == datasheet.KindChannel {
					want = core.Refusal{Result: datasheet.ResultInvalidParameter, Field: core.Field(b, &b.SendLog2)}
				}
			case datasheet.KindVI, datasheet.KindFrame, datasheet.KindReceiveQueue:
				continue
			}
			if _, why := e.kindOf(b); why != want {
				t.Errorf("kind %v, %d bytes of device memory: %+v, not %+v", id, len(sram), why, want)
			}
		}
	}
	for _, id := range []datasheet.Kind{datasheet.KindVI, datasheet.KindRing} {
		if _, ok := e.Kinds[id].Deliver(datasheet.Unreliable).(vi.Unreliable); !ok {
			t.Errorf("%v: what is not acknowledged is delivered otherwise", id)
		}
		if _, ok := e.Kinds[id].Deliver(datasheet.ReliableDelivery).(vi.Reliable); !ok {
			t.Errorf("%v: what is acknowledged is delivered otherwise", id)
		}
	}
}
