package engine

import (
	"slices"

	"github.com/trapeze-nic/trapeze/internal/cells"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// checkEndpoint names what is wrong with a new endpoint, of whatever kind.
func (e *Engine) checkEndpoint(b *datasheet.CreateEndpointBody) refusal {
	badCQ := func(cq uint32) bool {
		q := e.cqs.queue(cq)
		return cq != datasheet.NoCQ && (q == nil || q.dead)
	}
	badLog2 := func(n uint8) bool { return n < datasheet.MinQueueLog2 || n > e.limits.QueueLog2 }
	switch {
	case b.Reliability != datasheet.Unreliable && b.Reliability != datasheet.ReliableDelivery && b.Reliability != datasheet.ReliableReception:
		return refusal{datasheet.ResultInvalidReliability, fieldReliability}
	case b.MaxTransfer == 0 || b.MaxTransfer > e.limits.Transfer:
		return refusal{datasheet.ResultInvalidMTU, fieldMaxTransfer}
	case e.regions.ptag(b.Ptag) == nil:
		return refusal{datasheet.ResultInvalidPtag, fieldVIPtag}
	case b.Rights&^(datasheet.AccessRDMAWrite|datasheet.AccessRDMARead) != 0 || b.Rights != 0 && b.Kind != datasheet.KindVI:
		return refusal{datasheet.ResultInvalidParameter, fieldRights}
	case b.Rights&datasheet.AccessRDMARead != 0 && b.Reliability == datasheet.Unreliable:
		return refusal{datasheet.ResultInvalidRDMARead, fieldRights}
	case badLog2(b.SendLog2):
		return refusal{datasheet.ResultInvalidParameter, fieldSendLog2}
	case badLog2(b.RecvLog2):
		return refusal{datasheet.ResultInvalidParameter, fieldRecvLog2}
	case b.Kind != datasheet.KindRing && (b.SendIOVA == 0 || b.SendIOVA%datasheet.TokenSize != 0):
		return refusal{datasheet.ResultInvalidParameter, fieldSendIOVA}
	case b.Kind != datasheet.KindRing && b.Options&datasheet.EndpointShares == 0 && (b.RecvIOVA == 0 || b.RecvIOVA%datasheet.TokenSize != 0):
		return refusal{datasheet.ResultInvalidParameter, fieldRecvIOVA}
	case badCQ(b.SendCQ):
		return refusal{datasheet.ResultInvalidParameter, fieldSendCQ}
	case badCQ(b.RecvCQ):
		return refusal{datasheet.ResultInvalidParameter, fieldRecvCQ}
	case !e.limits.hasVector(b.SendVector):
		return refusal{datasheet.ResultInvalidParameter, fieldSendVector}
	case !e.limits.hasVector(b.RecvVector):
		return refusal{datasheet.ResultInvalidParameter, fieldRecvVector}
	case b.Options&datasheet.EndpointShares != 0:
		return e.checkSource(b)
	}
	return refusal{}
}

func (e *Engine) createEndpoint(b *datasheet.CreateEndpointBody) (reply datasheet.EndpointCreated, why refusal) {
	if b.Kind == datasheet.KindChannel {
		return e.createChannel(b)
	}
	kind, why := newKind(e, b)
	if why == (refusal{}) {
		why = kind.check(b)
	}
	if why == (refusal{}) {
		why = e.checkEndpoint(b)
	}
	if why != (refusal{}) {
		return reply, why
	}
	n := e.free(e.limits.Endpoints)
	if n == 0 {
		return reply, refusal{datasheet.ResultResource, 0}
	}
	ep := &endpoint{
		id: n, kind: kind, kindID: b.Kind, plain: true, options: b.Options, reliability: b.Reliability, rights: b.Rights, ptag: b.Ptag, maxTransfer: b.MaxTransfer,
		send: workQueue{iova: b.SendIOVA, mask: 1<<b.SendLog2 - 1, vector: b.SendVector, cq: e.cqs.queue(b.SendCQ)},
		recv: workQueue{iova: b.RecvIOVA, mask: 1<<b.RecvLog2 - 1, vector: b.RecvVector, cq: e.cqs.queue(b.RecvCQ), receive: true,
			named: b.Kind == datasheet.KindReceiveQueue},
	}
	if b.Options&datasheet.EndpointShares != 0 {
		ep.recv = sharing(e.all[b.RecvIOVA])
	}
	if reply, why = kind.create(ep); why != (refusal{}) {
		return reply, why
	}
	e.countUser(ep, 1)
	e.enter(ep)
	e.bells.open(n, ep.bells, true)
	if !kind.connects() {
		kind.open(ep, nil)
	}
	reply.Endpoint = n
	return reply, refusal{}
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
	e.regions.ptag(ep.ptag).users += n
}

// destroyEndpoint follows VIA: only an endpoint that is not connected and has
// nothing queued can go.
func (e *Engine) destroyEndpoint(b *datasheet.EndpointBody) refusal {
	ep := e.subject(b.Endpoint)
	switch {
	case ep == nil:
		return refusal{datasheet.ResultInvalidParameter, fieldEndpoint}
	case ep.state == datasheet.StateConnected || ep.state == datasheet.StateConnectPending:
		return refusal{datasheet.ResultInvalidState, fieldEndpoint}
	case ep.sharers > 0, ep.send.completed != ep.send.producer || ep.recv.completed != ep.recv.producer:
		return refusal{datasheet.ResultResource, fieldEndpoint}
	}
	ep.kind.destroy(ep)
	e.countUser(ep, -1)
	e.conns.depart(ep)
	e.all[ep.id] = nil
	e.living = slices.DeleteFunc(e.living, func(other *endpoint) bool { return other == ep })
	e.bells.close(ep.id)
	return refusal{}
}

func (e *Engine) queryEndpoint(b *datasheet.EndpointBody) (reply datasheet.EndpointReply, why refusal) {
	ep := e.subject(b.Endpoint)
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
	if _, why := e.regions.hosts(b.Handle); why != (refusal{}) {
		return why
	}
	e.regions.deregister(b.Handle)
	inRegion := func(s segment) bool { return s.handle == b.Handle }
	for _, ep := range e.living {
		if !ep.rel.lending() {
			continue
		}
		for r, n := ep.rel, ep.rel.head; int32(r.next-n) > 0; n++ {
			m := r.message(n)
			if m.frames == datasheet.FrameReadRequest || !slices.ContainsFunc(m.segments, inRegion) || r.arrived(m) {
				continue
			}
			if r.wire == 0 {
				e.tx.revoke(ep.id)
			} else {
				// It cannot be sent again, and nothing is wrong with those before it.
				m.status, r.broken = datasheet.StatusProtectionError, true
				e.conns.fail(ep, datasheet.StatusFlushed, datasheet.ResultDescriptor, true)
			}
			break
		}
	}
	return refusal{}
}

// setPayload writes an entry of an endpoint's payload table.
func (e *Engine) setPayload(b *datasheet.SetPayloadBody) refusal {
	ep := e.subject(b.Endpoint)
	switch {
	case ep == nil:
		return refusal{datasheet.ResultInvalidParameter, fieldTableEndpoint}
	case b.Entry >= datasheet.PayloadEntries:
		return refusal{datasheet.ResultInvalidParameter, fieldTableEntry}
	case b.Handle == 0 && b.Length != 0 || b.Handle != 0 && b.Length == 0:
		return refusal{datasheet.ResultInvalidParameter, fieldTableLength}
	case ep.ring == nil && b.Tag != 0, ep.ring != nil && b.Handle != 0 && b.Tag%datasheet.PayloadEntries != b.Entry:
		return refusal{datasheet.ResultInvalidParameter, fieldTableTag}
	}
	if b.Handle != 0 {
		if r, _ := e.regions.reach(b.Handle, ep.ptag, b.Address, uint64(b.Length), true); r == nil {
			return refusal{datasheet.ResultInvalidParameter, fieldTableHandle}
		}
		if ep.payloads == nil && ep.ring == nil {
			ep.payloads = make([]segment, datasheet.PayloadEntries)
		}
	}
	if ep.ring != nil {
		ep.setPlace(b)
		return refusal{}
	}
	if ep.payloads != nil {
		ep.payloads[b.Entry] = segment{b.Address, b.Handle, b.Length}
	}
	return refusal{}
}

// newKind finds the kind of a new endpoint.
func newKind(e *Engine, b *datasheet.CreateEndpointBody) (kind, refusal) {
	switch b.Kind {
	case datasheet.KindVI:
		if b.Reliability == datasheet.Unreliable {
			return unreliableVI{vi{&e.core}}, refusal{}
		}
		return reliableVI{vi{&e.core}}, refusal{}
	case datasheet.KindFrame:
		return frames{unreliableVI{vi{&e.core}}}, refusal{}
	case datasheet.KindReceiveQueue:
		return receiveQueue{unreliableVI{vi{&e.core}}}, refusal{}
	case datasheet.KindRing:
		switch {
		case e.regions.sram.bytes == nil:
			return nil, refusal{datasheet.ResultNotSupported, fieldKind}
		case b.Reliability == datasheet.Unreliable:
			return unreliableRing{unreliableVI{vi{&e.core}}, ring{&e.core}}, refusal{}
		}
		return reliableRing{reliableVI{vi{&e.core}}, ring{&e.core}}, refusal{}
	case datasheet.KindChannel:
		switch all := (channels{unreliableVI{vi{&e.core}}, &e.cells}); {
		case e.regions.sram.bytes == nil:
			return nil, refusal{datasheet.ResultNotSupported, fieldKind}
		case b.Options == datasheet.EndpointKernel:
			return kernelChannel{all}, refusal{}
		default:
			return all, refusal{}
		}
	}
	return nil, refusal{datasheet.ResultInvalidParameter, fieldKind}
}

// checkSource names what is wrong with the receive queue that a new VI is to share.
func (e *Engine) checkSource(b *datasheet.CreateEndpointBody) refusal {
	if b.RecvIOVA >= uint64(len(e.all)) || e.all[b.RecvIOVA] == nil {
		return refusal{datasheet.ResultInvalidParameter, fieldRecvIOVA}
	}
	from := e.all[b.RecvIOVA]
	switch _, ok := from.kind.(receiveQueue); {
	case !ok:
		return refusal{datasheet.ResultInvalidParameter, fieldRecvIOVA}
	case from.ptag != b.Ptag:
		return refusal{datasheet.ResultInvalidPtag, fieldVIPtag}
	case b.RecvCQ != datasheet.NoCQ:
		return refusal{datasheet.ResultInvalidParameter, fieldRecvCQ}
	}
	return refusal{}
}

// createChannel creates an endpoint of kind Channel.
func (e *Engine) createChannel(b *datasheet.CreateEndpointBody) (reply datasheet.EndpointCreated, why refusal) {
	kind, why := newKind(e, b)
	if why == (refusal{}) {
		why = kind.check(b)
	}
	if why != (refusal{}) {
		return reply, why
	}
	page := datasheet.ChannelPage(b.SendLog2)
	kernel := b.Options == datasheet.EndpointKernel
	n := uint32(0)
	if !kernel {
		n = e.free(min(page.Channels(), e.limits.Endpoints))
	}
	if e.all[n] != nil || n == 0 && !kernel {
		return reply, refusal{datasheet.ResultResource, 0}
	}
	at, ok := e.regions.sram.alloc(datasheet.PageSize, datasheet.PageSize)
	if !ok {
		return reply, refusal{datasheet.ResultResource, 0}
	}
	memory := e.regions.sram.memory(at)
	ch := &channel{page: page, mask: page.Words() - 1, span: at, tag: b.Ptag, kernel: kernel,
		control: datasheet.ChannelControlAt(memory), ends: datasheet.ChannelEndsAt(memory),
		send: doublePage{b.SendCQ, b.SendIOVA}, recv: doublePage{b.RecvCQ, b.RecvIOVA}}
	ch.transmit.Pointer, ch.receive.Pointer = uint16(2*n), uint16(2*n+1)
	if b.Options&datasheet.EndpointSpaced != 0 {
		ch.receive.Status = datasheet.ChannelSpaced
	}
	ch.crc = cells.StartCRC
	ch.showSent()
	ch.showReceived()
	ep := &endpoint{id: n, kind: kind, kindID: b.Kind, options: b.Options, reliability: b.Reliability, ptag: b.Ptag,
		maxTransfer: b.MaxTransfer, channel: ch, bells: bells}
	e.countUser(ep, 1)
	e.enter(ep)
	e.bells.open(n, ep.bells, true)
	ch.bells = e.bells.openChannel(n)
	e.cells.levels.Channels++
	return datasheet.EndpointCreated{Endpoint: n, Send: uint32(at.at)}, refusal{}
}
