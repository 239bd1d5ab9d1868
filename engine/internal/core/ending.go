package core

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// Depart keeps what ep remembers of its last connection, in place of the oldest.
func (c *Connections) Depart(ep *Endpoint) {
	if ep.ended.OurKey != 0 {
		c.departed[c.departedAt] = ep.ended
		c.departedAt = (c.departedAt + 1) % rememberedEnds
	}
}

// lastOf finds the connection that h belonged to, nil if it is forgotten.
func (c *Connections) lastOf(ep *Endpoint, h *datasheet.Header) *ended {
	return c.last(ep, h.DestinationEndpoint, func(p *ended) bool {
		return h.Key != 0 && p.OurKey == h.Key && p.MAC == h.Source && p.Endpoint == h.SourceEndpoint
	})
}

// last finds the connection of an endpoint that is the one, nil if it is forgotten.
func (c *Connections) last(ep *Endpoint, endpoint uint32, isIt func(*ended) bool) *ended {
	if ep != nil && isIt(&ep.ended) {
		return &ep.ended
	}
	for i := range c.departed {
		if p := &c.departed[i]; p.id == endpoint && isIt(p) {
			return p
		}
	}
	return nil
}

// Is reports whether frames with a tag are of the connection, if there is one.
func (p *Remote) Is(tag uint16) bool {
	return p.OurKey != 0 && p.Endpoint != 0 && uint16(p.OurKey) == tag
}

// LastWith does for a short frame what lastOf does for others.
func (c *Connections) LastWith(ep *Endpoint, endpoint uint32, tag uint16) *ended {
	return c.last(ep, endpoint, func(p *ended) bool { return p.Is(tag) })
}

// Fail breaks a connection: the peer is told if tell is set, the endpoint goes
// to the error state, its queues are flushed and the host gets an event. The
// oldest send under way ends with status first.
func (c *Connections) Fail(ep *Endpoint, first datasheet.Status, reason datasheet.Result, tell bool) {
	if ep.State != datasheet.StateConnected {
		return
	}
	c.End(ep, reason, tell)
	c.EnterError(ep, first)
	c.Event(datasheet.Event{Code: datasheet.EventConnectionLost, Endpoint: ep.ID, CQ: datasheet.NoCQ, Detail: uint32(reason)})
}

// End notes how a connection ended and tells the peer.
func (c *Connections) End(ep *Endpoint, reason datasheet.Result, tell bool) {
	if c.Tx.Held && c.Tx.Ep == ep {
		c.Tx.drop()
	}
	if !ep.Connects {
		return // there is no other end
	}
	c.Regions.Direct.disconnected(ep)
	ep.ended = ended{Remote: ep.Remote, id: ep.ID, reason: reason}
	r := ep.Flow
	if r != nil {
		ep.ended.taken, ep.ended.refused = r.Done, r.Refused
		ep.ended.posted, _ = ep.Delivery.Outstanding(ep)
	}
	if !tell {
		return
	}
	if r != nil && r.ackDue && reason != datasheet.ResultRemoteDescriptor {
		// It tells less than the disconnect, but one of the two may be lost. A
		// receive that has failed must not be acknowledged.
		c.Tx.SendAck(ep, datasheet.FrameAck)
	}
	if ep.ended.due = !c.sendDisconnect(&ep.ended); ep.ended.due {
		c.acks.Add(ep)
	} else if r != nil && r.Wire != 0 {
		// It must be there before the peer sees that the frame has been taken which
		// ended the connection.
		c.Tx.Flush()
	}
}

// EnterError puts an endpoint into the error state, in which everything posted
// ends at once.
func (c *Connections) EnterError(ep *Endpoint, first datasheet.Status) {
	ep.State = datasheet.StateError
	c.FlushSends(ep, first)
	c.FlushPosted(ep, &ep.Recv)
	c.unlink(ep)
}

// FlushSends ends every send of the endpoint, in order. The oldest one that was
// being worked on gets first, unless it has failed by itself; the others are
// flushed.
func (c *Connections) FlushSends(ep *Endpoint, first datasheet.Status) {
	if ep.Flow.Lending() {
		c.Tx.Revoke(ep.ID) // the peer has not acknowledged them: their buffers are the host's again
	}
	ep.Delivery.Flush(ep, first)
	c.FlushPosted(ep, &ep.Send)
}

// FlushPosted ends everything that is posted to a queue, in order.
func (c *Connections) FlushPosted(ep *Endpoint, q *WorkQueue) {
	for int32(q.Producer-q.Completed) > 0 {
		var l Layout
		l.Token, l.Status = c.Regions.Token(q, q.Completed)
		if !q.Receive && l.Status == 0 {
			l.Control.Bits = c.Regions.operation(l.Token, ep.Ptag)
		}
		ep.Kind.Format.Complete(ep, q, &l, 0, 0, l.Status|datasheet.StatusFlushed)
	}
	q.Fetched = q.Completed
}

// unlink forgets a connection, or ends the use for raw frames.
func (c *Connections) unlink(ep *Endpoint) {
	ep.Delivery.Close(ep)
	if ep.Request != nil {
		c.Requests.end(ep.Request)
		ep.Request = nil
	}
	ep.Conn, ep.Flow, ep.Alive, ep.Remote = nil, nil, nil, Remote{}
	ep.Era++
}

// sendDisconnect tells the peer of a connection that has ended how it ended. It
// returns false if the wire takes no more now.
func (c *Connections) sendDisconnect(p *ended) bool {
	return c.Ahead() && c.Tx.send(&datasheet.Header{
		Destination: p.MAC, Type: datasheet.FrameDisconnect,
		DestinationEndpoint: p.Endpoint, SourceEndpoint: p.id, Key: p.TheirKey,
		PSN: p.refused, Message: p.taken, Extent: p.posted, Immediate: uint32(p.reason),
	}, nil)
}

// AnswerUnknown tells the sender of a frame that its connection does not exist, or no
// longer. It returns false if the wire takes no more now.
func (c *Connections) AnswerUnknown(ep *Endpoint, h *datasheet.Header) bool {
	if c.Lossless != nil || c.Peers != nil {
		defer c.Tx.Flush() // as in end
	}
	if p := c.lastOf(ep, h); p != nil {
		return c.sendDisconnect(p)
	}
	to := h.Source
	if to == (datasheet.MAC{}) {
		to = datasheet.Broadcast // of a short frame no more than the tag is known
	}
	return c.Tx.send(&datasheet.Header{
		Destination: to, Type: datasheet.FrameDisconnect, Flags: datasheet.FrameEcho,
		DestinationEndpoint: h.SourceEndpoint, SourceEndpoint: h.DestinationEndpoint, Key: h.Key,
		Immediate: uint32(datasheet.ResultConnectionLost),
	}, nil)
}

// Probe asks the peer whether it lives.
func (c *Connections) Probe(ep *Endpoint, l *Liveness) {
	l.Unheard(&c.Clock)
	c.Tx.SendAck(ep, datasheet.FrameProbe)
}

// Expire ends a connection whose peer is dead. A wire that both ends have agreed on ends with the process
// at its other end: while it stands, a peer that does not answer has only been stopped.
func (c *Connections) Expire(ep *Endpoint, l *Liveness) {
	if r := ep.Flow; l.dead(&c.Clock, c.Timing.Dead) && (r == nil || r.Wire == 0 || r.Wire != c.Wire(ep.Remote.MAC) || !c.Port.LinkUp()) {
		c.Fail(ep, datasheet.StatusTransportError, datasheet.ResultConnectionLost, true)
	}
}

// SendAcks sends the acknowledgements that are due, and what the peers of connections
// that have ended are still to be told. It reports whether any went out.
func (c *Connections) SendAcks() bool {
	any := false
	c.acks.Keep(func(ep *Endpoint) (due bool) {
		switch r := ep.Flow; {
		case r == nil && ep.ended.due:
			due = !c.sendDisconnect(&ep.ended)
			ep.ended.due = due
		case r == nil || !r.ackDue && r.Have == 0:
			// A data frame has taken the acknowledgement along, and nothing has
			// arrived out of order that it could not tell.
			return false
		case !r.ackNow && r.holdsAck():
			return true
		default:
			due = !c.Tx.SendAck(ep, datasheet.FrameAck)
		}
		any = any || !due
		return due
	})
	return any
}
