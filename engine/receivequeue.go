package engine

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// A receive queue that several VIs share is an endpoint of a kind of its own (SPEC.md
// 4.3). A VI that has one takes a token from it when a message comes that needs a receive,
// and puts it into a ring of its own: from there on all is as with any VI.

// receiveQueue is the kind of those endpoints. They are idle for ever: what is posted to the
// send queue is flushed.
type receiveQueue struct{ unreliableVI }

func (receiveQueue) open(*endpoint, *datasheet.ConnectBody)            {}
func (receiveQueue) take(*endpoint, *datasheet.Header, []byte) verdict { return refused }

// receiveQueues is the kind of receive queues.
func receiveQueues(k *transport) *kind {
	return &kind{queues: true, tokens: true,
		check: func(b *datasheet.CreateEndpointBody) refusal {
			switch {
			case b.Options != 0:
				return refusal{datasheet.ResultInvalidParameter, fieldOptions}
			case b.SendCQ != datasheet.NoCQ:
				return refusal{datasheet.ResultInvalidParameter, fieldSendCQ}
			case b.RecvCQ == datasheet.NoCQ:
				return refusal{datasheet.ResultInvalidParameter, fieldRecvCQ}
			}
			return refusal{}
		},
		create: func(ep *endpoint, _ *datasheet.CreateEndpointBody) (datasheet.EndpointCreated, refusal) {
			ep.recv.named = true
			return datasheet.EndpointCreated{}, refusal{}
		},
		deliver: func(datasheet.Reliability) delivery { return receiveQueue{unreliableVI{k}} }}
}

// sharing is the receive side of a VI that shares the receives of from. It holds as many
// as messages can be in work.
func sharing(from *endpoint) workQueue {
	return workQueue{source: from, named: true, receive: true, cq: from.recv.cq, vector: datasheet.NoVector,
		mask: windowFrames - 1, tokens: make([]datasheet.Token, windowFrames)}
}

// share moves the next token of the queue that q shares to q. It returns false if there is
// none.
func (c *transport) share(q *workQueue) bool {
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
