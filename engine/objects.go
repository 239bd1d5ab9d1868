package engine

import (
	"slices"

	"github.com/trapeze-nic/trapeze/engine/internal/core"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// checkEndpoint names what is wrong with a new endpoint that has queues.
func (e *Engine) checkEndpoint(k *core.Kind, b *datasheet.CreateEndpointBody) core.Refusal {
	badCQ := func(cq uint32) bool {
		q := e.CQs.Queue(cq)
		return cq != datasheet.NoCQ && (q == nil || q.Dead)
	}
	badLog2 := func(n uint8) bool { return n < datasheet.MinQueueLog2 || n > e.Limits.QueueLog2 }
	why := core.FirstOf([]core.Check{
		{b.Reliability != datasheet.Unreliable && b.Reliability != datasheet.ReliableDelivery && b.Reliability != datasheet.ReliableReception, datasheet.ResultInvalidReliability, core.Field(b, &b.Reliability)},
		{b.MaxTransfer == 0 || b.MaxTransfer > e.Limits.Transfer, datasheet.ResultInvalidMTU, core.Field(b, &b.MaxTransfer)},
		{e.Regions.Ptag(b.Ptag) == nil, datasheet.ResultInvalidPtag, core.Field(b, &b.Ptag)},
		{b.Rights&^(datasheet.AccessRDMAWrite|datasheet.AccessRDMARead) != 0 || b.Rights != 0 && !k.Rights, datasheet.ResultInvalidParameter, core.Field(b, &b.Rights)},
		{b.Rights&datasheet.AccessRDMARead != 0 && b.Reliability == datasheet.Unreliable, datasheet.ResultInvalidRDMARead, core.Field(b, &b.Rights)},
		{badLog2(b.SendLog2), datasheet.ResultInvalidParameter, core.Field(b, &b.SendLog2)},
		{badLog2(b.RecvLog2), datasheet.ResultInvalidParameter, core.Field(b, &b.RecvLog2)},
		{k.Tokens && (b.SendIOVA == 0 || b.SendIOVA%datasheet.TokenSize != 0), datasheet.ResultInvalidParameter, core.Field(b, &b.SendIOVA)},
		{k.Tokens && b.Options&datasheet.EndpointShares == 0 && (b.RecvIOVA == 0 || b.RecvIOVA%datasheet.TokenSize != 0), datasheet.ResultInvalidParameter, core.Field(b, &b.RecvIOVA)},
		{badCQ(b.SendCQ), datasheet.ResultInvalidParameter, core.Field(b, &b.SendCQ)},
		{badCQ(b.RecvCQ), datasheet.ResultInvalidParameter, core.Field(b, &b.RecvCQ)},
		{!e.Limits.HasVector(b.SendVector), datasheet.ResultInvalidParameter, core.Field(b, &b.SendVector)},
		{!e.Limits.HasVector(b.RecvVector), datasheet.ResultInvalidParameter, core.Field(b, &b.RecvVector)},
	})
	if why == (core.Refusal{}) && b.Options&datasheet.EndpointShares != 0 {
		why = e.checkSource(b)
	}
	return why
}

func (e *Engine) createEndpoint(b *datasheet.CreateEndpointBody) (reply datasheet.EndpointCreated, why core.Refusal) {
	k, why := e.kindOf(b)
	if why != (core.Refusal{}) {
		return reply, why
	}
	n, ok := uint32(0), false
	if k.Number != nil {
		n, ok = k.Number(b)
	} else {
		n = e.Free(e.Limits.Endpoints)
		ok = n != 0
	}
	if !ok {
		return reply, core.Refusal{Result: datasheet.ResultResource, Field: 0}
	}
	ep := &core.Endpoint{ID: n, Kind: k, Connects: k.Connects, Delivery: k.Deliver(b.Reliability), KindID: b.Kind, Options: b.Options,
		Reliability: b.Reliability, Rights: b.Rights, Ptag: b.Ptag, MaxTransfer: b.MaxTransfer}
	if k.Queues {
		ep.Send = core.WorkQueue{IOVA: b.SendIOVA, Mask: 1<<b.SendLog2 - 1, Vector: b.SendVector, CQ: e.CQs.Queue(b.SendCQ)}
		ep.Recv = core.WorkQueue{IOVA: b.RecvIOVA, Mask: 1<<b.RecvLog2 - 1, Vector: b.RecvVector, CQ: e.CQs.Queue(b.RecvCQ), Receive: true}
	}
	if k.Create != nil {
		if reply, why = k.Create(ep, b); why != (core.Refusal{}) {
			return reply, why
		}
	}
	e.countUser(ep, 1)
	e.All[n] = ep
	e.Living = append(e.Living, ep)
	e.Bells.Open(n, ep.Bells, true)
	reply.Endpoint = n
	return reply, core.Refusal{}
}

// kindOf finds the kind of a new endpoint, of which nothing is wrong.
func (e *Engine) kindOf(b *datasheet.CreateEndpointBody) (k *core.Kind, why core.Refusal) {
	switch {
	case int(b.Kind) >= len(e.Kinds) || e.Kinds[b.Kind] == nil:
		return nil, core.Refusal{Result: datasheet.ResultInvalidParameter, Field: core.Field(b, &b.Kind)}
	case e.Kinds[b.Kind].SRAM && e.Regions.SRAM.Bytes == nil:
		return nil, core.Refusal{Result: datasheet.ResultNotSupported, Field: core.Field(b, &b.Kind)}
	}
	k = e.Kinds[b.Kind]
	if why = k.Check(b); why == (core.Refusal{}) && k.Queues {
		why = e.checkEndpoint(k, b)
	}
	return k, why
}

// countUser counts ep among the users of its completion queues and its protection tag, or,
// with -1, no longer.
func (e *Engine) countUser(ep *core.Endpoint, n int) {
	for _, q := range []*core.WorkQueue{&ep.Send, &ep.Recv} {
		if q.CQ != nil {
			q.CQ.Users += n
		}
	}
	if ep.Recv.Source != nil {
		ep.Recv.Source.Sharers += n
	}
	e.Regions.Ptag(ep.Ptag).Users += n
}

// destroyEndpoint follows VIA: only an endpoint that is not connected and has
// nothing queued can go.
func (e *Engine) destroyEndpoint(b *datasheet.EndpointBody) core.Refusal {
	ep := e.Subject(b.Endpoint)
	switch {
	case ep == nil:
		return core.Refusal{Result: datasheet.ResultInvalidParameter, Field: core.Field(b, &b.Endpoint)}
	case ep.State == datasheet.StateConnected || ep.State == datasheet.StateConnectPending:
		return core.Refusal{Result: datasheet.ResultInvalidState, Field: core.Field(b, &b.Endpoint)}
	case ep.Sharers > 0, ep.Send.Completed != ep.Send.Producer || ep.Recv.Completed != ep.Recv.Producer:
		return core.Refusal{Result: datasheet.ResultResource, Field: core.Field(b, &b.Endpoint)}
	}
	if ep.Kind.Destroy != nil {
		ep.Kind.Destroy(ep)
	}
	e.countUser(ep, -1)
	e.Conns.Depart(ep)
	e.All[ep.ID] = nil
	e.Living = slices.DeleteFunc(e.Living, func(other *core.Endpoint) bool { return other == ep })
	e.Bells.Close(ep.ID)
	return core.Refusal{}
}

func (e *Engine) queryEndpoint(b *datasheet.EndpointBody) (reply datasheet.EndpointReply, why core.Refusal) {
	ep := e.Subject(b.Endpoint)
	if ep == nil {
		return reply, core.Refusal{Result: datasheet.ResultInvalidParameter, Field: core.Field(b, &b.Endpoint)}
	}
	return datasheet.EndpointReply{
		SendProducer: ep.Send.Producer, SendCompleted: ep.Send.Completed,
		RecvProducer: ep.Recv.Producer, RecvCompleted: ep.Recv.Completed,
		RemoteEndpoint: ep.Remote.Endpoint, State: ep.State, RemoteMAC: ep.Remote.MAC,
	}, core.Refusal{}
}

// deregisterMemory takes back what has been lent of the region, too.
func (e *Engine) deregisterMemory(b *datasheet.MemoryBody) core.Refusal {
	if _, why := e.Regions.Hosts(b.Handle); why != (core.Refusal{}) {
		return why
	}
	e.Regions.Deregister(b.Handle)
	e.vis.Revoke(b.Handle)
	return core.Refusal{}
}

func (e *Engine) setPayload(b *datasheet.SetPayloadBody) core.Refusal {
	ep := e.Subject(b.Endpoint)
	switch {
	case ep == nil:
		return core.Refusal{Result: datasheet.ResultInvalidParameter, Field: core.Field(b, &b.Endpoint)}
	case b.Entry >= datasheet.PayloadEntries:
		return core.Refusal{Result: datasheet.ResultInvalidParameter, Field: core.Field(b, &b.Entry)}
	case b.Handle == 0 && b.Length != 0 || b.Handle != 0 && b.Length == 0:
		return core.Refusal{Result: datasheet.ResultInvalidParameter, Field: core.Field(b, &b.Length)}
	case ep.Kind.SetPayload == nil && b.Tag != 0, ep.Kind.SetPayload != nil && b.Handle != 0 && b.Tag%datasheet.PayloadEntries != b.Entry:
		return core.Refusal{Result: datasheet.ResultInvalidParameter, Field: core.Field(b, &b.Tag)}
	}
	if b.Handle != 0 {
		if r, _ := e.Regions.Reach(b.Handle, ep.Ptag, b.Address, uint64(b.Length), true); r == nil {
			return core.Refusal{Result: datasheet.ResultInvalidParameter, Field: core.Field(b, &b.Handle)}
		}
		if ep.Payloads == nil && ep.Kind.SetPayload == nil {
			ep.Payloads = make([]core.Segment, datasheet.PayloadEntries)
		}
	}
	if ep.Kind.SetPayload != nil {
		ep.Kind.SetPayload(ep, b)
		return core.Refusal{}
	}
	if ep.Payloads != nil {
		ep.Payloads[b.Entry] = core.Segment{Address: b.Address, Handle: b.Handle, Length: b.Length}
	}
	return core.Refusal{}
}

// checkSource names what is wrong with the receive queue that a new VI is to share.
func (e *Engine) checkSource(b *datasheet.CreateEndpointBody) core.Refusal {
	if b.RecvIOVA >= uint64(len(e.All)) || e.All[b.RecvIOVA] == nil {
		return core.Refusal{Result: datasheet.ResultInvalidParameter, Field: core.Field(b, &b.RecvIOVA)}
	}
	from := e.All[b.RecvIOVA]
	return core.FirstOf([]core.Check{
		{!from.Recv.Named || from.Recv.Source != nil, datasheet.ResultInvalidParameter, core.Field(b, &b.RecvIOVA)}, // it is no receive queue
		{from.Ptag != b.Ptag, datasheet.ResultInvalidPtag, core.Field(b, &b.Ptag)},
		{b.RecvCQ != datasheet.NoCQ, datasheet.ResultInvalidParameter, core.Field(b, &b.RecvCQ)},
	})
}

// modifyEndpoint gives an idle VI other attributes, which are checked as those of a new
// one are. What is posted stays posted.
func (e *Engine) modifyEndpoint(b *datasheet.ModifyEndpointBody) core.Refusal {
	ep := e.Subject(b.Endpoint)
	switch {
	case ep == nil:
		return core.Refusal{Result: datasheet.ResultInvalidParameter, Field: core.Field(b, &b.Endpoint)}
	case ep.State != datasheet.StateIdle || !ep.Kind.Rights:
		return core.Refusal{Result: datasheet.ResultInvalidState, Field: core.Field(b, &b.Endpoint)}
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
	e.Regions.Ptag(ep.Ptag).Users--
	e.Regions.Ptag(b.Ptag).Users++
	ep.Delivery, ep.Options, ep.Reliability = k.Deliver(b.Reliability), b.Options, b.Reliability
	ep.Rights, ep.Ptag, ep.MaxTransfer = b.Rights, b.Ptag, b.MaxTransfer
	e.Regions.Stamp++ // what receives were found to reach is as the old tag has it
	return core.Refusal{}
}
