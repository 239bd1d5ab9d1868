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

func receiveQueues(k *Transport) *core.Kind {
	return &core.Kind{Queues: true, Tokens: true, Format: tokens{k.Core},
		Check: func(b *datasheet.CreateEndpointBody) core.Refusal {
			return core.FirstOf([]core.Check{
				{b.Options != 0, datasheet.ResultInvalidParameter, core.FieldOptions},
				{b.SendCQ != datasheet.NoCQ, datasheet.ResultInvalidParameter, core.Field(b, &b.SendCQ)},
				{b.RecvCQ == datasheet.NoCQ, datasheet.ResultInvalidParameter, core.Field(b, &b.RecvCQ)},
			})
		},
		Create: func(ep *core.Endpoint, _ *datasheet.CreateEndpointBody) (datasheet.EndpointCreated, core.Refusal) {
			ep.Recv.Named = true
			return datasheet.EndpointCreated{}, core.Refusal{}
		},
		Deliver: func(datasheet.Reliability) core.Delivery { return receiveQueue{Unreliable{k}} }}
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
