package engine

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// depart keeps what ep remembers of its last connection, in place of the oldest.
func (c *connections) depart(ep *endpoint) {
	if ep.ended.ourKey != 0 {
		c.departed[c.departedAt] = ep.ended
		c.departedAt = (c.departedAt + 1) % rememberedEnds
	}
}

// lastOf finds the connection that h belonged to, nil if nobody remembers it.
func (c *connections) lastOf(ep *endpoint, h *datasheet.Header) *ended {
	if h.Key == 0 {
		return nil
	}
	if ep != nil && ep.ended.had(h) {
		return &ep.ended
	}
	for i := range c.departed {
		if p := &c.departed[i]; p.id == h.DestinationEndpoint && p.had(h) {
			return p
		}
	}
	return nil
}

// had reports whether a frame of the peer belongs to the connection.
func (p *ended) had(h *datasheet.Header) bool {
	return p.ourKey == h.Key && p.mac == h.Source && p.endpoint == h.SourceEndpoint
}

// is reports whether frames with a tag are of the connection, if there is one.
func (p *remote) is(tag uint16) bool {
	return p.ourKey != 0 && p.endpoint != 0 && uint16(p.ourKey) == tag
}

// lastWith does for a short frame what lastOf does for others.
func (c *connections) lastWith(ep *endpoint, s datasheet.ShortHeader) *ended {
	if ep != nil && ep.ended.is(s.Tag) {
		return &ep.ended
	}
	for i := range c.departed {
		if p := &c.departed[i]; p.id == uint32(s.Endpoint) && p.is(s.Tag) {
			return p
		}
	}
	return nil
}

// fail breaks a connection: the peer is told if tell is set, the endpoint goes
// to the error state, its queues are flushed and the host gets an event. The
// oldest send under way ends with status first.
func (c *connections) fail(ep *endpoint, first datasheet.Status, reason datasheet.Result, tell bool) {
	if ep.state != datasheet.StateConnected {
		return
	}
	c.end(ep, reason, tell)
	c.enterError(ep, first)
	c.event(datasheet.Event{Code: datasheet.EventConnectionLost, Endpoint: ep.id, CQ: datasheet.NoCQ, Detail: uint32(reason)})
}

// end notes how a connection ended and tells the peer.
func (c *connections) end(ep *endpoint, reason datasheet.Result, tell bool) {
	if c.tx.held && c.tx.ep == ep {
		c.tx.drop()
	}
	if !ep.connects {
		return // nobody is at the other end
	}
	c.regions.direct.disconnected(ep)
	ep.ended = ended{remote: ep.remote, id: ep.id, reason: reason}
	r := ep.flow
	if r != nil {
		ep.ended.taken, ep.ended.refused = r.done, r.refused
		ep.ended.posted, _ = ep.delivery.outstanding(ep)
	}
	if !tell {
		return
	}
	if r != nil && r.ackDue && reason != datasheet.ResultRemoteDescriptor {
		// It tells less than the disconnect, but one of the two may be lost. A
		// receive that has failed must not be acknowledged.
		c.tx.sendAck(ep, datasheet.FrameAck)
	}
	if ep.ended.due = !c.sendDisconnect(&ep.ended); ep.ended.due {
		c.acks.add(ep)
	} else if r != nil && r.wire != 0 {
		// It must be there before the peer sees that the frame has been taken which
		// ended the connection.
		c.tx.flush()
	}
}

// enterError puts an endpoint into the error state, in which everything posted
// ends at once.
func (c *connections) enterError(ep *endpoint, first datasheet.Status) {
	ep.state = datasheet.StateError
	c.flushSends(ep, first)
	c.flushPosted(ep, &ep.recv)
	c.unlink(ep)
}

// flushSends ends every send of the endpoint, in order. The oldest one that was
// being worked on gets first, unless it has failed by itself; the others are
// flushed.
func (c *connections) flushSends(ep *endpoint, first datasheet.Status) {
	if ep.flow.lending() {
		c.tx.revoke(ep.id) // the peer has not acknowledged them: their buffers are the host's again
	}
	ep.delivery.flush(ep, first)
	c.flushPosted(ep, &ep.send)
}

// flushPosted ends everything that is posted to a queue, in order.
func (c *connections) flushPosted(ep *endpoint, q *workQueue) {
	for int32(q.producer-q.completed) > 0 {
		var l layout
		l.token, l.status = c.regions.token(q, q.completed)
		if !q.receive && l.status == 0 {
			l.control.bits = c.regions.operation(l.token, ep.ptag)
		}
		ep.delivery.complete(ep, q, &l, 0, 0, l.status|datasheet.StatusFlushed)
	}
	q.fetched = q.completed
}

// unlink forgets a connection, or ends the use for raw frames.
func (c *connections) unlink(ep *endpoint) {
	ep.delivery.close(ep)
	if ep.request != nil {
		c.requests.end(ep.request)
		ep.request = nil
	}
	ep.conn, ep.flow, ep.alive, ep.remote = nil, nil, nil, remote{}
	ep.era++
}

// sendDisconnect tells the peer of a connection that has ended how it ended. It
// returns false if the wire takes no more now.
func (c *connections) sendDisconnect(p *ended) bool {
	return c.tx.send(&datasheet.Header{
		Destination: p.mac, Type: datasheet.FrameDisconnect,
		DestinationEndpoint: p.endpoint, SourceEndpoint: p.id, Key: p.theirKey,
		PSN: p.refused, Message: p.taken, Extent: p.posted, Immediate: uint32(p.reason),
	}, nil)
}

// answerUnknown tells the sender of a frame that its connection does not exist, or no
// longer. It returns false if the wire takes no more now.
func (c *connections) answerUnknown(ep *endpoint, h *datasheet.Header) bool {
	if c.lossless != nil || c.peers != nil {
		defer c.tx.flush() // as in end
	}
	if p := c.lastOf(ep, h); p != nil {
		return c.sendDisconnect(p)
	}
	to := h.Source
	if to == (datasheet.MAC{}) {
		to = datasheet.Broadcast // of a short frame no more than the tag is known
	}
	return c.tx.send(&datasheet.Header{
		Destination: to, Type: datasheet.FrameDisconnect, Flags: datasheet.FrameEcho,
		DestinationEndpoint: h.SourceEndpoint, SourceEndpoint: h.DestinationEndpoint, Key: h.Key,
		Immediate: uint32(datasheet.ResultConnectionLost),
	}, nil)
}

// probe asks the peer whether it lives.
func (c *connections) probe(ep *endpoint, l *liveness) {
	l.unheard(&c.clock)
	c.tx.sendAck(ep, datasheet.FrameProbe)
}

// expire ends a connection whose peer is dead.
func (c *connections) expire(ep *endpoint, l *liveness) {
	if l.dead(&c.clock, c.timing.Dead) {
		c.fail(ep, datasheet.StatusTransportError, datasheet.ResultConnectionLost, true)
	}
}
