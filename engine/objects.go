package engine

import (
	"slices"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// checkEndpoint names what is wrong with a new endpoint that has queues.
func (e *Engine) checkEndpoint(k *kind, b *datasheet.CreateEndpointBody) refusal {
	badCQ := func(cq uint32) bool {
		q := e.core.cqs.queue(cq)
		return cq != datasheet.NoCQ && (q == nil || q.dead)
	}
	badLog2 := func(n uint8) bool { return n < datasheet.MinQueueLog2 || n > e.core.limits.QueueLog2 }
	switch {
	case b.Reliability != datasheet.Unreliable && b.Reliability != datasheet.ReliableDelivery && b.Reliability != datasheet.ReliableReception:
		return refusal{datasheet.ResultInvalidReliability, fieldReliability}
	case b.MaxTransfer == 0 || b.MaxTransfer > e.core.limits.Transfer:
		return refusal{datasheet.ResultInvalidMTU, fieldMaxTransfer}
	case e.core.regions.ptag(b.Ptag) == nil:
		return refusal{datasheet.ResultInvalidPtag, fieldVIPtag}
	case b.Rights&^(datasheet.AccessRDMAWrite|datasheet.AccessRDMARead) != 0 || b.Rights != 0 && !k.rights:
		return refusal{datasheet.ResultInvalidParameter, fieldRights}
	case b.Rights&datasheet.AccessRDMARead != 0 && b.Reliability == datasheet.Unreliable:
		return refusal{datasheet.ResultInvalidRDMARead, fieldRights}
	case badLog2(b.SendLog2):
		return refusal{datasheet.ResultInvalidParameter, fieldSendLog2}
	case badLog2(b.RecvLog2):
		return refusal{datasheet.ResultInvalidParameter, fieldRecvLog2}
	case k.tokens && (b.SendIOVA == 0 || b.SendIOVA%datasheet.TokenSize != 0):
		return refusal{datasheet.ResultInvalidParameter, fieldSendIOVA}
	case k.tokens && b.Options&datasheet.EndpointShares == 0 && (b.RecvIOVA == 0 || b.RecvIOVA%datasheet.TokenSize != 0):
		return refusal{datasheet.ResultInvalidParameter, fieldRecvIOVA}
	case badCQ(b.SendCQ):
		return refusal{datasheet.ResultInvalidParameter, fieldSendCQ}
	case badCQ(b.RecvCQ):
		return refusal{datasheet.ResultInvalidParameter, fieldRecvCQ}
	case !e.core.limits.hasVector(b.SendVector):
		return refusal{datasheet.ResultInvalidParameter, fieldSendVector}
	case !e.core.limits.hasVector(b.RecvVector):
		return refusal{datasheet.ResultInvalidParameter, fieldRecvVector}
	case b.Options&datasheet.EndpointShares != 0:
		return e.checkSource(b)
	}
	return refusal{}
}

func (e *Engine) createEndpoint(b *datasheet.CreateEndpointBody) (reply datasheet.EndpointCreated, why refusal) {
	k, why := e.kindOf(b)
	if why != (refusal{}) {
		return reply, why
	}
	n, ok := uint32(0), false
	if k.number != nil {
		n, ok = k.number(b)
	} else {
		n = e.core.free(e.core.limits.Endpoints)
		ok = n != 0
	}
	if !ok {
		return reply, refusal{datasheet.ResultResource, 0}
	}
	ep := &endpoint{id: n, kind: k, connects: k.connects, delivery: k.deliver(b.Reliability), kindID: b.Kind, options: b.Options,
		reliability: b.Reliability, rights: b.Rights, ptag: b.Ptag, maxTransfer: b.MaxTransfer}
	if k.queues {
		ep.send = workQueue{iova: b.SendIOVA, mask: 1<<b.SendLog2 - 1, vector: b.SendVector, cq: e.core.cqs.queue(b.SendCQ)}
		ep.recv = workQueue{iova: b.RecvIOVA, mask: 1<<b.RecvLog2 - 1, vector: b.RecvVector, cq: e.core.cqs.queue(b.RecvCQ), receive: true}
	}
	if k.create != nil {
		if reply, why = k.create(ep, b); why != (refusal{}) {
			return reply, why
		}
	}
	e.countUser(ep, 1)
	e.core.enter(ep)
	e.core.bells.open(n, ep.bells, true)
	reply.Endpoint = n
	return reply, refusal{}
}

// kindOf finds the kind of a new endpoint, of which nothing is wrong.
func (e *Engine) kindOf(b *datasheet.CreateEndpointBody) (k *kind, why refusal) {
	switch {
	case int(b.Kind) >= len(e.core.kinds) || e.core.kinds[b.Kind] == nil:
		return nil, refusal{datasheet.ResultInvalidParameter, fieldKind}
	case e.core.kinds[b.Kind].sram && e.core.regions.sram.bytes == nil:
		return nil, refusal{datasheet.ResultNotSupported, fieldKind}
	}
	k = e.core.kinds[b.Kind]
	if why = k.check(b); why == (refusal{}) && k.queues {
		why = e.checkEndpoint(k, b)
	}
	return k, why
}

// countUser counts ep among the users of its completion queues and its protection tag, or,
// with -1, no longer.
func (e *Engine) countUser(ep *endpoint, n int) {
	for _, q := range []*workQueue{&ep.send, &ep.recv} {
		if q.cq != nil {
			q.cq.users += n
		}
	}
	if ep.recv.source != nil {
		ep.recv.source.sharers += n
	}
	e.core.regions.ptag(ep.ptag).users += n
}

// destroyEndpoint follows VIA: only an endpoint that is not connected and has
// nothing queued can go.
func (e *Engine) destroyEndpoint(b *datasheet.EndpointBody) refusal {
	ep := e.core.subject(b.Endpoint)
	switch {
	case ep == nil:
		return refusal{datasheet.ResultInvalidParameter, fieldEndpoint}
	case ep.state == datasheet.StateConnected || ep.state == datasheet.StateConnectPending:
		return refusal{datasheet.ResultInvalidState, fieldEndpoint}
	case ep.sharers > 0, ep.send.completed != ep.send.producer || ep.recv.completed != ep.recv.producer:
		return refusal{datasheet.ResultResource, fieldEndpoint}
	}
	if ep.kind.destroy != nil {
		ep.kind.destroy(ep)
	}
	e.countUser(ep, -1)
	e.core.conns.depart(ep)
	e.core.all[ep.id] = nil
	e.core.living = slices.DeleteFunc(e.core.living, func(other *endpoint) bool { return other == ep })
	e.core.bells.close(ep.id)
	return refusal{}
}

func (e *Engine) queryEndpoint(b *datasheet.EndpointBody) (reply datasheet.EndpointReply, why refusal) {
	ep := e.core.subject(b.Endpoint)
	if ep == nil {
		return reply, refusal{datasheet.ResultInvalidParameter, fieldEndpoint}
	}
	return datasheet.EndpointReply{
		SendProducer: ep.send.producer, SendCompleted: ep.send.completed,
		RecvProducer: ep.recv.producer, RecvCompleted: ep.recv.completed,
		RemoteEndpoint: ep.remote.endpoint, State: ep.state, RemoteMAC: ep.remote.mac,
	}, refusal{}
}

// deregisterMemory takes back what has been lent of the region, too.
func (e *Engine) deregisterMemory(b *datasheet.MemoryBody) refusal {
	if _, why := e.core.regions.hosts(b.Handle); why != (refusal{}) {
		return why
	}
	e.core.regions.deregister(b.Handle)
	e.vis.revoke(b.Handle)
	return refusal{}
}

// setPayload writes an entry of an endpoint's payload table.
func (e *Engine) setPayload(b *datasheet.SetPayloadBody) refusal {
	ep := e.core.subject(b.Endpoint)
	switch {
	case ep == nil:
		return refusal{datasheet.ResultInvalidParameter, fieldTableEndpoint}
	case b.Entry >= datasheet.PayloadEntries:
		return refusal{datasheet.ResultInvalidParameter, fieldTableEntry}
	case b.Handle == 0 && b.Length != 0 || b.Handle != 0 && b.Length == 0:
		return refusal{datasheet.ResultInvalidParameter, fieldTableLength}
	case ep.kind.setPayload == nil && b.Tag != 0, ep.kind.setPayload != nil && b.Handle != 0 && b.Tag%datasheet.PayloadEntries != b.Entry:
		return refusal{datasheet.ResultInvalidParameter, fieldTableTag}
	}
	if b.Handle != 0 {
		if r, _ := e.core.regions.reach(b.Handle, ep.ptag, b.Address, uint64(b.Length), true); r == nil {
			return refusal{datasheet.ResultInvalidParameter, fieldTableHandle}
		}
		if ep.payloads == nil && ep.kind.setPayload == nil {
			ep.payloads = make([]segment, datasheet.PayloadEntries)
		}
	}
	if ep.kind.setPayload != nil {
		ep.kind.setPayload(ep, b)
		return refusal{}
	}
	if ep.payloads != nil {
		ep.payloads[b.Entry] = segment{b.Address, b.Handle, b.Length}
	}
	return refusal{}
}

// checkSource names what is wrong with the receive queue that a new VI is to share.
func (e *Engine) checkSource(b *datasheet.CreateEndpointBody) refusal {
	if b.RecvIOVA >= uint64(len(e.core.all)) || e.core.all[b.RecvIOVA] == nil {
		return refusal{datasheet.ResultInvalidParameter, fieldRecvIOVA}
	}
	from := e.core.all[b.RecvIOVA]
	switch {
	case !from.recv.named || from.recv.source != nil: // it is no receive queue
		return refusal{datasheet.ResultInvalidParameter, fieldRecvIOVA}
	case from.ptag != b.Ptag:
		return refusal{datasheet.ResultInvalidPtag, fieldVIPtag}
	case b.RecvCQ != datasheet.NoCQ:
		return refusal{datasheet.ResultInvalidParameter, fieldRecvCQ}
	}
	return refusal{}
}
