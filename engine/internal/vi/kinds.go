package vi

import (
	"github.com/trapeze-nic/trapeze/engine/internal/core"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// New makes the transport of an engine, and registers the kinds that it has itself: VIs,
// receive queues that VIs share, and endpoints for raw frames.
func New(c *core.Core) *Transport {
	k := &Transport{Core: c, wires: &ways{}, Lane: newSendLane(&c.Tx).send}
	c.Rx.Lane, c.Rx.Short, c.Rx.Raw = lane, short, takeRaw
	c.Kinds[datasheet.KindVI] = &core.Kind{Connects: true, Queues: true, Tokens: true, Rights: true,
		Check: k.check, Create: k.create, Destroy: c.Regions.ForgetRings, Deliver: k.Deliver}
	c.Kinds[datasheet.KindReceiveQueue] = receiveQueues(k)
	c.Kinds[datasheet.KindFrame] = rawFrames(k)
	return k
}

// Receipts calls do for each message of the endpoint that is on its way in.
func (k *Transport) Receipts(ep *core.Endpoint, do func(in *core.Receipt)) {
	if r := rel(ep); r != nil {
		for i := range r.receipts {
			do(&r.receipts[i])
		}
	}
	if u := unrel(ep); u != nil {
		do(&u.in)
	}
}

// A receive queue that several VIs share is an endpoint of a kind of its own (SPEC.md
// 4.3). A VI that has one takes a token from it when a message comes that needs a receive,
// and puts it into a ring of its own: from there on all is as with any VI.

// receiveQueue is the kind of those endpoints. They are idle for ever: what is posted to the
// send queue is flushed.
type receiveQueue struct{ Unreliable }

func (receiveQueue) Open(*core.Endpoint, *datasheet.ConnectBody)                 {}
func (receiveQueue) Take(*core.Endpoint, *datasheet.Header, []byte) core.Verdict { return core.Refused }

func receiveQueues(k *Transport) *core.Kind {
	return &core.Kind{Queues: true, Tokens: true,
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

