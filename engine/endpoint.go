package engine

import "github.com/trapeze-nic/trapeze/descriptors"

// window of the reliability protocol in frames: what the selective
// acknowledgement can express (SPEC.md 8.4).
const windowFrames = 64

// endpoint is one VI, or takes and sends raw frames.
type endpoint struct {
	id          uint32
	kind        kind
	options     descriptors.EndpointOptions
	reliability descriptors.Reliability
	rights      descriptors.Access
	ptag        uint32
	maxTransfer uint32
	state       descriptors.State

	send, recv workQueue
	listed     listed

	remote  remote
	outline descriptors.Header // what the headers of the connection's frames have in common
	setup   *setup             // while a connection is being set up
	request *request           // that led to the connection, at the server
	epitaph epitaph            // of the last connection

	// Of its kind.
	rel   *reliable   // connected and acknowledged
	unrel *unreliable // connected and not, or open for raw frames

	era      uint32    // changes when a connection, or the use for raw frames, ends
	payloads []segment // payload table, nil as long as it is empty
}

// remote is the other end of a connection.
type remote struct {
	mac      descriptors.MAC
	endpoint uint32
	// theirKey goes into frames we send, ourKey is expected in frames we get.
	theirKey, ourKey uint32
}

// epitaph is what is left of a connection that has ended, so that a peer that
// missed the end can be told.
type epitaph struct {
	remote
	reason descriptors.Result
	taken  uint32 // number of the first message that was not taken
	posted uint32 // number behind the last message that the host had posted
	due    bool   // the wire had no room for it
}

// endpoint finds an endpoint by its number.
func (e *Engine) endpoint(id uint32) *endpoint {
	if id == 0 || id >= uint32(len(e.endpoints)) {
		return nil
	}
	return e.endpoints[id]
}

// flushSends ends every send of the endpoint, in order. The oldest one that was
// being worked on gets first, unless it has failed by itself; the others are
// flushed.
func (e *Engine) flushSends(ep *endpoint, first descriptors.Status) {
	q := &ep.send
	e.recall(ep)
	for r := ep.rel; r != nil && int32(r.next-r.head) > 0; {
		m := r.message(r.head)
		switch {
		case m.status != 0:
			first = m.status
		case r.arrived(m): // it has not been settled yet
			e.delivered(ep, m)
			continue
		}
		r.head++
		e.cqs.complete(ep, q, m.token, 0, 0, first)
		first = descriptors.StatusFlushed
	}
	if u := ep.unrel; u != nil && u.out.begun {
		u.out.begun = false
		e.cqs.complete(ep, q, u.out.token, 0, 0, first)
	}
	for int32(q.posted()) > 0 {
		t, st := e.regions.token(q, q.fetched)
		q.fetched++
		e.cqs.complete(ep, q, t, 0, 0, st|descriptors.StatusFlushed)
	}
}

// flushReceives ends every posted receive, in order.
func (e *Engine) flushReceives(ep *endpoint) {
	q := &ep.recv
	for int32(q.producer-q.completed) > 0 {
		t, st := e.regions.token(q, q.completed)
		e.cqs.complete(ep, q, t, 0, 0, st|descriptors.StatusFlushed)
	}
	q.fetched = q.completed
}

// fail breaks a connection: the peer is told if tell is set, the endpoint goes
// to the error state, its queues are flushed and the host gets an event. The
// oldest send under way ends with status first.
func (e *Engine) fail(ep *endpoint, first descriptors.Status, reason descriptors.Result, tell bool) {
	if ep.state != descriptors.StateConnected {
		return
	}
	e.bury(ep, reason, tell)
	e.enterError(ep, first)
	e.event(descriptors.Event{Code: descriptors.EventConnectionLost, Endpoint: ep.id, CQ: descriptors.NoCQ, Detail: uint32(reason)})
}

// enterError puts an endpoint into the error state, in which everything posted
// ends at once.
func (e *Engine) enterError(ep *endpoint, first descriptors.Status) {
	ep.state = descriptors.StateError
	e.flushSends(ep, first)
	e.flushReceives(ep)
	e.unlink(ep)
}

// unfinished reports whether messages are posted that are not known to have
// arrived.
func (ep *endpoint) unfinished() bool {
	r := ep.rel
	return r != nil && (ep.send.posted() > 0 || r.next != r.head && !r.arrived(r.message(r.next-1)))
}

// bury notes how a connection ended and tells the peer.
func (e *Engine) bury(ep *endpoint, reason descriptors.Result, tell bool) {
	if e.out.held && e.out.ep == ep {
		e.dropSend()
	}
	if !ep.kind.connects() {
		return // nobody is at the other end
	}
	ep.epitaph = epitaph{remote: ep.remote, reason: reason}
	r := ep.rel
	if r != nil {
		ep.epitaph.taken, ep.epitaph.posted = r.done, r.next+ep.send.posted()
	}
	if !tell {
		return
	}
	if r != nil && r.owed && reason != descriptors.ResultRemoteDescriptor {
		// It tells less than the disconnect, but one of the two may be lost. A
		// receive that has failed must not be acknowledged.
		e.sendAck(ep, descriptors.FrameAck)
	}
	if ep.epitaph.due = !e.sendEpitaph(ep); ep.epitaph.due {
		e.owing.add(ep)
	}
}

// unlink forgets a connection, or ends the use for raw frames.
func (e *Engine) unlink(ep *endpoint) {
	ep.kind.close(e, ep)
	if ep.request != nil {
		e.requests.end(ep.request)
		ep.request = nil
	}
	ep.rel, ep.unrel, ep.remote = nil, nil, remote{}
	ep.era++
}

// failDoomed carries out what killCQ began.
func (e *Engine) failDoomed() {
	for len(e.cqs.doomed) > 0 {
		cq := e.cqs.doomed[0]
		e.cqs.doomed = e.cqs.doomed[1:]
		for _, ep := range e.endpoints {
			if ep == nil || ep.send.cq != cq && ep.recv.cq != cq {
				continue
			}
			switch ep.state {
			case descriptors.StateConnected:
				e.fail(ep, descriptors.StatusFlushed, descriptors.ResultResource, true)
			case descriptors.StateConnectPending:
				e.endSetup(ep, descriptors.ResultResource)
				e.enterError(ep, descriptors.StatusFlushed)
			case descriptors.StateIdle:
				e.enterError(ep, descriptors.StatusFlushed)
			}
		}
	}
}
