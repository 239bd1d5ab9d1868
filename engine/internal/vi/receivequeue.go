package vi

import (
	"github.com/trapeze-nic/trapeze/engine/internal/core"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// A receive queue that several VIs share is an endpoint of a kind of its own (SPEC.md
// 4.3). A VI that has one takes a token from it when a message comes that needs a receive,
// and puts it into a ring of its own: from there on all is as with any VI.

// receiveQueue is the kind of those endpoints. They are idle for ever: what is posted to the
// send queue is flushed.
type receiveQueue struct{ Unreliable }

func (receiveQueue) Open(*core.Endpoint, *datasheet.ConnectBody)                 {}
func (receiveQueue) Take(*core.Endpoint, *datasheet.Header, []byte) core.Verdict { return core.Refused }

// receiveQueues is the kind of receive queues.
func receiveQueues(k *Transport) *core.Kind {
	return &core.Kind{Queues: true, Tokens: true,
		Check: func(b *datasheet.CreateEndpointBody) core.Refusal {
			switch {
			case b.Options != 0:
				return core.Refusal{Result: datasheet.ResultInvalidParameter, Field: core.FieldOptions}
			case b.SendCQ != datasheet.NoCQ:
				return core.Refusal{Result: datasheet.ResultInvalidParameter, Field: core.FieldSendCQ}
			case b.RecvCQ == datasheet.NoCQ:
				return core.Refusal{Result: datasheet.ResultInvalidParameter, Field: core.FieldRecvCQ}
			}
			return core.Refusal{}
		},
		Create: func(ep *core.Endpoint, _ *datasheet.CreateEndpointBody) (datasheet.EndpointCreated, core.Refusal) {
			ep.Recv.Named = true
			return datasheet.EndpointCreated{}, core.Refusal{}
		},
		Deliver: func(datasheet.Reliability) core.Delivery { return receiveQueue{Unreliable{k}} }}
}

// sharing is the receive side of a VI that shares the receives of from. It holds as many
// as messages can be in work.
func sharing(from *core.Endpoint) core.WorkQueue {
	return core.WorkQueue{Source: from, Named: true, Receive: true, CQ: from.Recv.CQ, Vector: datasheet.NoVector,
		Mask: core.WindowFrames - 1, Tokens: make([]datasheet.Token, core.WindowFrames)}
}

// share moves the next token of the queue that q shares to q. It returns false if there is
// none.
func (c *Transport) share(q *core.WorkQueue) bool {
	if q.Source == nil || q.Producer-q.Completed > q.Mask {
		return false
	}
	from := &q.Source.Recv
	if from.Posted() == 0 {
		// As in takeReceive.
		if c.Bells.TakePage(q.Source.ID); from.Posted() == 0 {
			return false
		}
	}
	t, st := c.Regions.Token(from, from.Fetched)
	if st != 0 {
		t = datasheet.Token{} // no region has handle 0: it ends with a protection error
	}
	from.Fetched++
	q.Tokens[q.Producer&q.Mask] = t
	q.Producer++
	return true
}

// shareUpTo has the VI take what it needs from the queue that it shares for a message,
// ahead of the oldest that is not complete. If there is too little the message is dropped;
// the peer, which will send it again, learns that this end lives.
func (r *reliable) shareUpTo(ahead uint32) bool {
	q := &r.Ep.Recv
	for ahead >= q.Producer-q.Completed {
		if !r.nic.share(q) {
			r.nic.Count(datasheet.CounterReceiveQueueEmpty, 1)
			r.Acknowledge(true)
			return false
		}
	}
	return true
}
