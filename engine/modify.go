package engine

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// modifyEndpoint gives an idle VI other attributes, which are checked as those of a new
// one are. What is posted stays posted.
func (e *Engine) modifyEndpoint(b *datasheet.ModifyEndpointBody) refusal {
	ep := e.core.subject(b.Endpoint)
	switch {
	case ep == nil:
		return refusal{datasheet.ResultInvalidParameter, fieldEndpoint}
	case ep.state != datasheet.StateIdle || !ep.kind.rights:
		return refusal{datasheet.ResultInvalidState, fieldEndpoint}
	case (b.Options^ep.options)&(datasheet.EndpointShares|datasheet.EndpointEager) != 0:
		return refusal{datasheet.ResultInvalidParameter, fieldOptions}
	}
	as := datasheet.CreateEndpointBody{Ptag: b.Ptag, MaxTransfer: b.MaxTransfer, Reliability: b.Reliability, Rights: b.Rights, Options: b.Options,
		Kind: ep.kindID, SendIOVA: ep.send.iova, RecvIOVA: ep.recv.iova, SendLog2: datasheet.MinQueueLog2, RecvLog2: datasheet.MinQueueLog2,
		SendCQ: datasheet.NoCQ, RecvCQ: datasheet.NoCQ, SendVector: ep.send.vector, RecvVector: ep.recv.vector}
	if ep.recv.source != nil {
		as.RecvIOVA = uint64(ep.recv.source.id)
	}
	k, why := e.kindOf(&as)
	if why != (refusal{}) {
		return why
	}
	e.core.regions.ptag(ep.ptag).users--
	e.core.regions.ptag(b.Ptag).users++
	ep.delivery, ep.options, ep.reliability = k.deliver(b.Reliability), b.Options, b.Reliability
	ep.rights, ep.ptag, ep.maxTransfer = b.Rights, b.Ptag, b.MaxTransfer
	e.core.regions.stamp++ // what receives were found to reach is as the old tag has it
	return refusal{}
}
