package engine

import "github.com/trapeze-nic/trapeze/descriptors"

func (e *Engine) createPtag(id uint16) {
	i := 1
	for i < len(e.ptags) && e.ptags[i].live {
		i++
	}
	if i == len(e.ptags) {
		if uint32(i) >= e.limits.Ptags {
			e.answer(id, descriptors.ResultResource, 0)
			return
		}
		e.ptags = append(e.ptags, ptag{})
	}
	t := &e.ptags[i]
	t.live = true
	t.value = (t.value&^ptagIndexMask + 1<<ptagIndexBits) | uint32(i)
	answerWith(e, id, descriptors.PtagBody{Ptag: t.value})
}

// ptag finds a live protection tag.
func (e *Engine) ptag(value uint32) *ptag {
	i := value & ptagIndexMask
	if int(i) >= len(e.ptags) || !e.ptags[i].live || e.ptags[i].value != value {
		return nil
	}
	return &e.ptags[i]
}

func (e *Engine) destroyPtag(id uint16, b *descriptors.PtagBody) {
	t := e.ptag(b.Ptag)
	switch {
	case t == nil || b.Ptag == 0:
		e.answer(id, descriptors.ResultInvalidPtag, fieldPtag)
	case t.users > 0:
		e.answer(id, descriptors.ResultResource, fieldPtag)
	default:
		t.live = false
		e.answer(id, descriptors.ResultSuccess, 0)
	}
}

func (e *Engine) registerMemory(id uint16, b *descriptors.RegisterMemoryBody) {
	t := e.ptag(b.Ptag)
	switch {
	case b.Length == 0 || b.Address+b.Length < b.Address:
		e.answer(id, descriptors.ResultInvalidParameter, fieldRegionLength)
		return
	case b.IOVA+b.Length < b.IOVA || b.IOVA%descriptors.PageSize != b.Address%descriptors.PageSize:
		e.answer(id, descriptors.ResultInvalidParameter, fieldRegionIOVA)
		return
	case t == nil:
		e.answer(id, descriptors.ResultInvalidPtag, fieldRegionPtag)
		return
	case b.Access&descriptors.AccessReserved != 0:
		e.answer(id, descriptors.ResultInvalidParameter, fieldRegionAccess)
		return
	case b.Access&descriptors.AccessRDMARead != 0:
		e.answer(id, descriptors.ResultInvalidRDMARead, fieldRegionAccess)
		return
	case b.Access&^descriptors.AccessReadOnly != 0:
		e.answer(id, descriptors.ResultNotSupported, fieldRegionAccess)
		return
	}
	var i uint32
	switch full := uint32(len(e.regions)) == e.limits.Regions; {
	case len(e.freeSlots) > restingSlots, full && len(e.freeSlots) > 0:
		i = e.freeSlots[0]
		e.freeSlots = e.freeSlots[1:]
	case full:
		e.answer(id, descriptors.ResultResource, 0)
		return
	default:
		i = uint32(len(e.regions))
		e.regions = append(e.regions, region{})
	}
	r := &e.regions[i]
	generation := r.last>>regionIndexBits + 1
	if generation>>(32-regionIndexBits) != 0 {
		generation = 1
	}
	handle := generation<<regionIndexBits | i
	*r = region{handle: handle, last: handle, ptag: b.Ptag, address: b.Address, length: b.Length, iova: b.IOVA, access: b.Access}
	t.users++
	answerWith(e, id, descriptors.MemoryBody{Handle: handle})
}

func (e *Engine) deregisterMemory(id uint16, b *descriptors.MemoryBody) {
	i := b.Handle & regionIndexMask
	if int(i) >= len(e.regions) || e.regions[i].handle != b.Handle || b.Handle == 0 {
		e.answer(id, descriptors.ResultInvalidParameter, fieldHandle)
		return
	}
	r := &e.regions[i]
	e.recallRegion(b.Handle)
	e.ptag(r.ptag).users--
	*r = region{last: r.last}
	e.revoked++
	e.freeSlots = append(e.freeSlots, i)
	e.answer(id, descriptors.ResultSuccess, 0)
}

// vectorExists says whether a vector number may be given to a queue.
func (e *Engine) vectorExists(v uint16) bool {
	return v == descriptors.NoVector || v < e.limits.Vectors
}

func (e *Engine) createCQ(id uint16, b *descriptors.CreateCQBody) {
	switch {
	case b.IOVA == 0 || b.IOVA%descriptors.CompletionSize != 0:
		e.answer(id, descriptors.ResultInvalidParameter, fieldCQIOVA)
		return
	case b.IndexIOVA == 0 || b.IndexIOVA%4 != 0:
		e.answer(id, descriptors.ResultInvalidParameter, fieldCQIndex)
		return
	case !e.vectorExists(b.Vector):
		e.answer(id, descriptors.ResultInvalidParameter, fieldCQVector)
		return
	case b.Log2 < descriptors.MinCQLog2 || b.Log2 > e.limits.CQLog2:
		e.answer(id, descriptors.ResultInvalidParameter, fieldCQLog2)
		return
	}
	for range e.cqs {
		// As with endpoints, numbers are not used again before all others were.
		i := (e.lastCQ + 1) % e.limits.CQs
		e.lastCQ = i
		if e.cqs[i] != nil {
			continue
		}
		cq := &completionQueue{id: i, iova: b.IOVA, indexIOVA: b.IndexIOVA, log2: b.Log2, vector: b.Vector}
		if !e.mapCQ(cq) {
			e.answer(id, descriptors.ResultDMAFault, fieldCQIOVA)
			return
		}
		e.cqs[i] = cq
		e.bells.cells[e.limits.Endpoints+i].rung.Store(0)
		e.mapCQBell(cq)
		answerWith(e, id, descriptors.CQBody{CQ: cq.id})
		return
	}
	e.answer(id, descriptors.ResultResource, 0)
}

func (e *Engine) destroyCQ(id uint16, b *descriptors.CQBody) {
	if b.CQ >= uint32(len(e.cqs)) || e.cqs[b.CQ] == nil {
		e.answer(id, descriptors.ResultInvalidParameter, fieldCQ)
		return
	}
	cq := e.cqs[b.CQ]
	if cq.users > 0 {
		e.answer(id, descriptors.ResultResource, fieldCQ)
		return
	}
	e.cqs[b.CQ] = nil
	e.unmapBell(cq)
	e.answer(id, descriptors.ResultSuccess, 0)
}

// checkEndpoint names what is wrong with a new endpoint.
func (e *Engine) checkEndpoint(b *descriptors.CreateEndpointBody) (descriptors.Result, uint16) {
	badCQ := func(cq uint32) bool {
		return cq != descriptors.NoCQ && (cq >= uint32(len(e.cqs)) || e.cqs[cq] == nil || e.cqs[cq].dead)
	}
	badLog2 := func(n uint8) bool { return n < descriptors.MinQueueLog2 || n > e.limits.QueueLog2 }
	switch {
	case b.Kind == descriptors.KindRing || b.Kind == descriptors.KindChannel:
		return descriptors.ResultNotSupported, fieldKind
	case b.Kind != descriptors.KindVI && b.Kind != descriptors.KindFrame:
		return descriptors.ResultInvalidParameter, fieldKind
	case b.Options&descriptors.EndpointOptionsReserved != 0 || b.Kind == descriptors.KindVI && b.Options != 0:
		return descriptors.ResultInvalidParameter, fieldOptions
	case b.Kind == descriptors.KindFrame && b.Reliability != descriptors.Unreliable:
		return descriptors.ResultInvalidReliability, fieldReliability
	case b.Kind == descriptors.KindFrame && (b.MaxTransfer < descriptors.EthernetHeaderSize || b.MaxTransfer > uint32(e.port.MTU())):
		return descriptors.ResultInvalidMTU, fieldMaxTransfer
	case b.Reliability != descriptors.Unreliable && b.Reliability != descriptors.ReliableDelivery && b.Reliability != descriptors.ReliableReception:
		return descriptors.ResultInvalidReliability, fieldReliability
	case b.MaxTransfer == 0 || b.MaxTransfer > e.limits.Transfer:
		return descriptors.ResultInvalidMTU, fieldMaxTransfer
	case e.ptag(b.Ptag) == nil:
		return descriptors.ResultInvalidPtag, fieldVIPtag
	case b.Rights&descriptors.AccessRDMARead != 0:
		return descriptors.ResultInvalidRDMARead, fieldRights
	case b.Rights == descriptors.AccessRDMAWrite:
		return descriptors.ResultNotSupported, fieldRights
	case b.Rights != 0:
		return descriptors.ResultInvalidParameter, fieldRights
	case badLog2(b.SendLog2):
		return descriptors.ResultInvalidParameter, fieldSendLog2
	case badLog2(b.RecvLog2):
		return descriptors.ResultInvalidParameter, fieldRecvLog2
	case b.SendIOVA == 0 || b.SendIOVA%descriptors.TokenSize != 0:
		return descriptors.ResultInvalidParameter, fieldSendIOVA
	case b.RecvIOVA == 0 || b.RecvIOVA%descriptors.TokenSize != 0:
		return descriptors.ResultInvalidParameter, fieldRecvIOVA
	case badCQ(b.SendCQ):
		return descriptors.ResultInvalidParameter, fieldSendCQ
	case badCQ(b.RecvCQ):
		return descriptors.ResultInvalidParameter, fieldRecvCQ
	case !e.vectorExists(b.SendVector):
		return descriptors.ResultInvalidParameter, fieldSendVector
	case !e.vectorExists(b.RecvVector):
		return descriptors.ResultInvalidParameter, fieldRecvVector
	}
	return descriptors.ResultSuccess, 0
}

func (e *Engine) createEndpoint(id uint16, b *descriptors.CreateEndpointBody) {
	if r, field := e.checkEndpoint(b); r != descriptors.ResultSuccess {
		e.answer(id, r, field)
		return
	}
	n := e.freeEndpoint()
	if n == 0 {
		e.answer(id, descriptors.ResultResource, 0)
		return
	}
	cq := func(i uint32) *completionQueue {
		if i == descriptors.NoCQ {
			return nil
		}
		e.cqs[i].users++
		return e.cqs[i]
	}
	ep := &endpoint{
		id: n, kind: b.Kind, options: b.Options, reliability: b.Reliability, rights: b.Rights, ptag: b.Ptag, maxTransfer: b.MaxTransfer,
		send: workQueue{iova: b.SendIOVA, mask: 1<<b.SendLog2 - 1, vector: b.SendVector, cq: cq(b.SendCQ)},
		recv: workQueue{iova: b.RecvIOVA, mask: 1<<b.RecvLog2 - 1, vector: b.RecvVector, cq: cq(b.RecvCQ), receive: true},
	}
	e.ptag(b.Ptag).users++
	e.endpoints[n] = ep
	e.bells.cells[n].rung.Store(0)
	e.mapEndpoint(ep)
	if ep.kind == descriptors.KindFrame {
		e.openFrames(ep)
	}
	answerWith(e, id, descriptors.EndpointBody{Endpoint: n})
}

// freeEndpoint finds a number for a new endpoint, zero if there is none. Numbers
// are not used again before all others were, so that a late doorbell or frame
// seldom meets a stranger.
func (e *Engine) freeEndpoint() uint32 {
	for range e.endpoints {
		e.lastEndpoint++
		if e.lastEndpoint >= uint32(len(e.endpoints)) {
			e.lastEndpoint = 1
		}
		if e.endpoints[e.lastEndpoint] == nil {
			return e.lastEndpoint
		}
	}
	return 0
}

// destroyEndpoint follows VIA: only an endpoint that is not connected and has
// nothing queued can go.
func (e *Engine) destroyEndpoint(id uint16, b *descriptors.EndpointBody) {
	ep := e.subject(b.Endpoint)
	switch {
	case ep == nil:
		e.answer(id, descriptors.ResultInvalidParameter, fieldEndpoint)
		return
	case ep.state == descriptors.StateConnected || ep.state == descriptors.StateConnectPending:
		e.answer(id, descriptors.ResultInvalidState, fieldEndpoint)
		return
	case ep.send.completed != ep.send.producer || ep.recv.completed != ep.recv.producer:
		e.answer(id, descriptors.ResultResource, fieldEndpoint)
		return
	}
	for _, q := range []*workQueue{&ep.send, &ep.recv} {
		if q.cq != nil {
			q.cq.users--
		}
	}
	e.ptag(ep.ptag).users--
	e.endpoints[ep.id] = nil
	if ep.bell != nil {
		e.unmapBell(ep)
	}
	e.answer(id, descriptors.ResultSuccess, 0)
}

func (e *Engine) queryEndpoint(id uint16, b *descriptors.EndpointBody) {
	ep := e.subject(b.Endpoint)
	if ep == nil {
		e.answer(id, descriptors.ResultInvalidParameter, fieldEndpoint)
		return
	}
	answerWith(e, id, descriptors.EndpointReply{
		SendProducer: ep.send.producer, SendCompleted: ep.send.completed,
		RecvProducer: ep.recv.producer, RecvCompleted: ep.recv.completed,
		RemoteEndpoint: ep.remote.endpoint, State: ep.state, RemoteMAC: ep.remote.mac,
	})
}
