package engine

import (
	"github.com/trapeze-nic/trapeze/engine/internal/core"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// modifyEndpoint gives an idle VI other attributes, which are checked as those of a new
// one are. What is posted stays posted.
func (e *Engine) modifyEndpoint(b *datasheet.ModifyEndpointBody) core.Refusal {
	ep := e.core.Subject(b.Endpoint)
	switch {
	case ep == nil:
		return core.Refusal{Result: datasheet.ResultInvalidParameter, Field: core.FieldEndpoint}
	case ep.State != datasheet.StateIdle || !ep.Kind.Rights:
		return core.Refusal{Result: datasheet.ResultInvalidState, Field: core.FieldEndpoint}
	case (b.Options^ep.Options)&(datasheet.EndpointShares|datasheet.EndpointEager) != 0:
		return core.Refusal{Result: datasheet.ResultInvalidParameter, Field: core.FieldOptions}
	}
	as := datasheet.CreateEndpointBody{Ptag: b.Ptag, MaxTransfer: b.MaxTransfer, Reliability: b.Reliability, Rights: b.Rights, Options: b.Options,
		Kind: ep.KindID, SendIOVA: ep.Send.IOVA, RecvIOVA: ep.Recv.IOVA, SendLog2: datasheet.MinQueueLog2, RecvLog2: datasheet.MinQueueLog2,
		SendCQ: datasheet.NoCQ, RecvCQ: datasheet.NoCQ, SendVector: ep.Send.Vector, RecvVector: ep.Recv.Vector}
	if ep.Recv.Source != nil {
		as.RecvIOVA = uint64(ep.Recv.Source.ID)
	}
	k, why := e.kindOf(&as)
	if why != (core.Refusal{}) {
		return why
	}
	e.core.Regions.Ptag(ep.Ptag).Users--
	e.core.Regions.Ptag(b.Ptag).Users++
	ep.Delivery, ep.Options, ep.Reliability = k.Deliver(b.Reliability), b.Options, b.Reliability
	ep.Rights, ep.Ptag, ep.MaxTransfer = b.Rights, b.Ptag, b.MaxTransfer
	e.core.Regions.Stamp++ // what receives were found to reach is as the old tag has it
	return core.Refusal{}
}
