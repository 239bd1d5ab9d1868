package engine

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// modifyEndpoint gives an idle VI other attributes, which are checked as those of a new
// one are. What is posted stays posted.
func (e *Engine) modifyEndpoint(b *datasheet.ModifyEndpointBody) refusal {
	ep := e.subject(b.Endpoint)
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
	e.regions.ptag(ep.ptag).users--
	e.regions.ptag(b.Ptag).users++
	ep.delivery, ep.options, ep.reliability = k.deliver(b.Reliability), b.Options, b.Reliability
	ep.rights, ep.ptag, ep.maxTransfer = b.Rights, b.Ptag, b.MaxTransfer
	e.regions.stamp++ // what receives were found to reach is as the old tag has it
	return refusal{}
}

// modify gives a region another tag and other rights: those of a registration of the
// same memory, which takes its place under the old handle.
func (m *regions) modify(b *datasheet.ModifyMemoryBody) refusal {
	at, why := m.hosts(b.Handle)
	if why != (refusal{}) {
		return why
	}
	i, old := b.Handle&regionIndexMask, *at
	if (b.Access^old.access)&eagerBits != 0 {
		return refusal{datasheet.ResultNotSupported, fieldRegionAccess}
	}
	reply, why := m.register(&datasheet.RegisterMemoryBody{Address: old.address, Length: old.length, IOVA: old.iova, Ptag: b.Ptag, Access: b.Access &^ eagerBits})
	if why != (refusal{}) {
		return why
	}
	j := reply.Handle & regionIndexMask
	m.withdraw(reply.Handle)
	m.withdraw(old.handle)
	r := m.table[j]
	r.handle, r.last = old.handle, old.last
	r.access, r.eager, r.shown = b.Access, old.eager, nil
	m.table[i] = r
	m.publish(&m.table[i])
	m.table[j] = region{last: reply.Handle}
	m.free = append(m.free, j)
	m.ptag(old.ptag).users--
	m.stamp++
	return refusal{}
}

// resize has a completion queue go on in another ring, from its first slot on. The host
// still takes what is in the old one.
func (c *completions) resize(b *datasheet.ResizeCQBody) (reply datasheet.ResizeCQReply, why refusal) {
	cq := c.queue(b.CQ)
	switch {
	case cq == nil:
		return reply, refusal{datasheet.ResultInvalidParameter, fieldResizedCQ}
	case cq.dead:
		return reply, refusal{datasheet.ResultInvalidState, fieldResizedCQ}
	case b.IOVA == 0 || b.IOVA%datasheet.CompletionSize != 0:
		return reply, refusal{datasheet.ResultInvalidParameter, fieldCQIOVA}
	case b.IndexIOVA == 0 || b.IndexIOVA%4 != 0:
		return reply, refusal{datasheet.ResultInvalidParameter, fieldCQIndex}
	case b.Log2 < datasheet.MinCQLog2 || b.Log2 > c.memory.limits.CQLog2:
		return reply, refusal{datasheet.ResultInvalidParameter, fieldResizedLog2}
	}
	other := *cq
	other.iova, other.indexIOVA, other.log2 = b.IOVA, b.IndexIOVA, b.Log2
	if !c.memory.reachable(other.iova, other.bytes()) || !c.mapCQ(&other) {
		return reply, refusal{datasheet.ResultDMAFault, fieldCQIOVA}
	}
	reply.Written = cq.producer
	other.producer, other.consumer, other.armed = 0, 0, false
	if cq.armed {
		c.raise(cq.vector)
	}
	*cq = other
	return reply, refusal{}
}
