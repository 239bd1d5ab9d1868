package engine_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// TestEagerTokensRefused: what has no room, no device memory, or no tokens of its own takes
// nothing; what was taken is there again once the VI is destroyed, or the device reset.
func TestEagerTokensRefused(t *testing.T) {
	w := newWorld(t)
	n := w.a
	body := datasheet.CreateEndpointBody{SendIOVA: busBase, RecvIOVA: busBase + 8192, MaxTransfer: 1 << 20,
		SendCQ: datasheet.NoCQ, RecvCQ: datasheet.NoCQ, SendVector: datasheet.NoVector, RecvVector: datasheet.NoVector,
		Kind: datasheet.KindVI, Reliability: datasheet.ReliableDelivery, SendLog2: 8, RecvLog2: 8, Options: datasheet.EndpointEager}
	refused(t, n, "no device memory", datasheet.OpCreateEndpoint, body, datasheet.ResultNotSupported)
	n.mapSRAM(sramFrom+2*4096, sramFrom) // one ring of 4 KiB and its status, not two
	free := n.e.FreeSRAM()
	before := n.e.Counter(datasheet.CounterEagerRefused)
	refused(t, n, "no room for the receive ring", datasheet.OpCreateEndpoint, body, datasheet.ResultResource)
	large := body
	large.SendLog2, large.RecvLog2 = 9, 9
	refused(t, n, "no room for the send ring", datasheet.OpCreateEndpoint, large, datasheet.ResultResource)
	if got := n.e.Counter(datasheet.CounterEagerRefused); got != before+2 || n.e.FreeSRAM() != free {
		t.Errorf("%d refusals were counted, %d bytes are free of %d", got-before, n.e.FreeSRAM(), free)
	}
	frame := body
	frame.Kind, frame.Reliability, frame.MaxTransfer = datasheet.KindFrame, datasheet.Unreliable, 1500
	refused(t, n, "kind Frame", datasheet.OpCreateEndpoint, frame, datasheet.ResultInvalidParameter)
	body.SendLog2, body.RecvLog2 = 4, 4
	id := datasheet.Reply[datasheet.EndpointCreated](do(n, datasheet.OpCreateEndpoint, body)).Endpoint
	taken := n.e.FreeSRAM()
	if taken >= free {
		t.Errorf("%d bytes are free of %d", taken, free)
	}
	modify := datasheet.ModifyEndpointBody{Endpoint: id, MaxTransfer: 1000, Reliability: datasheet.Unreliable}
	refused(t, n, "ordinary by MODIFY_ENDPOINT", datasheet.OpModifyEndpoint, modify, datasheet.ResultInvalidParameter)
	modify.Options = datasheet.EndpointEager
	do(n, datasheet.OpModifyEndpoint, modify)
	should.Be(t, n.e.FreeSRAM(), taken, "modified: bytes are free")
	do(n, datasheet.OpDestroyEndpoint, datasheet.EndpointBody{Endpoint: id})
	should.Be(t, n.e.FreeSRAM(), free, "destroyed: bytes are free")
	do(n, datasheet.OpCreateEndpoint, body)
	n.e.Reset()
	should.Be(t, n.e.FreeSRAM(), free, "reset: bytes are free")
}
