package engine

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// A receive queue that several VIs share is an endpoint of a kind of its own (SPEC.md
// 4.3). A VI that has one takes a token from it when a message comes that needs a receive,
// and puts it into a ring of its own: from there on all is as with any VI.

// receiveQueue is the kind of those endpoints. They are idle for ever: what is posted to the
// send queue is flushed.
type receiveQueue struct{ unreliableVI }

func (receiveQueue) connects() bool                                    { return false }
func (receiveQueue) open(*endpoint, *datasheet.ConnectBody)            {}
func (receiveQueue) take(*endpoint, *datasheet.Header, []byte) verdict { return refused }
func (receiveQueue) check(b *datasheet.CreateEndpointBody) refusal {
	switch {
	case b.Options != 0:
		return refusal{datasheet.ResultInvalidParameter, fieldOptions}
	case b.SendCQ != datasheet.NoCQ:
		return refusal{datasheet.ResultInvalidParameter, fieldSendCQ}
	case b.RecvCQ == datasheet.NoCQ:
		return refusal{datasheet.ResultInvalidParameter, fieldRecvCQ}
	}
	return refusal{}
}

// sharing is the receive side of a VI that shares the receives of from. It holds as many
// as messages can be in work.
func sharing(from *endpoint) workQueue {
	return workQueue{source: from, named: true, receive: true, cq: from.recv.cq, vector: datasheet.NoVector,
		mask: windowFrames - 1, tokens: make([]datasheet.Token, windowFrames)}
}

// share moves the next token of the queue that q shares to q. It returns false if there is
// none.
func (c *core) share(q *workQueue) bool {
	if q.source == nil || q.producer-q.completed > q.mask {
		return false
	}
	from := &q.source.recv
	if from.posted() == 0 {
		// As in takeReceive.
		if c.bells.takePage(q.source.id); from.posted() == 0 {
			return false
		}
	}
	t, st := c.regions.token(from, from.fetched)
	if st != 0 {
		t = datasheet.Token{} // no region has handle 0: it ends with a protection error
	}
	from.fetched++
	q.tokens[q.producer&q.mask] = t
	q.producer++
	return true
}

// shareUpTo has the VI take what it needs from the queue that it shares for a message,
// ahead of the oldest that is not complete. If there is too little the message is dropped;
// the peer, which will send it again, learns that this end lives.
func (r *reliable) shareUpTo(ahead uint32) bool {
	q := &r.ep.recv
	for ahead >= q.producer-q.completed {
		if !r.nic.share(q) {
			r.nic.count(datasheet.CounterReceiveQueueEmpty, 1)
			r.acknowledge(true)
			return false
		}
	}
	return true
}

// mayAgree reports whether ep may agree with its peer that nothing is lost on the wire. A
// VI that shares a receive queue drops messages for which there is none.
func (c *core) mayAgree(ep *endpoint) bool {
	return ep.reliability != datasheet.Unreliable && ep.recv.source == nil
}

// takeReceive fetches the next receive descriptor into in, unless none is
// posted. A bad one shows in in.status.
func (r *receiver) takeReceive(ep *endpoint, in *receipt) bool {
	q := &ep.recv
	if q.posted() == 0 {
		// The host may have rung since this round looked: what it had posted
		// before the message was sent must be there for it.
		if r.bells.takePage(ep.id); q.posted() == 0 && !r.share(q) {
			return false
		}
	}
	if ep.plain {
		r.regions.fetch(ep, q, &in.layout)
	} else {
		ep.kind.fetch(ep, q, &in.layout)
	}
	return true
}
