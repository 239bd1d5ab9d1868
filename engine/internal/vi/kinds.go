package vi

import (
	"github.com/trapeze-nic/trapeze/engine/internal/core"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// New makes the transport of an engine, and registers the kinds that it has itself: VIs,
// receive queues that VIs share, and endpoints for raw frames.
func New(c *core.Core) *Transport {
	k := &Transport{Core: c}
	c.Rx.Short, c.Rx.Raw = short, takeRaw
	c.Kinds[datasheet.KindVI] = &core.Kind{Connects: true, Queues: true, Tokens: true, Rights: true,
		Check: k.check, Create: k.create, Destroy: c.Regions.ForgetRings, Deliver: k.Deliver, Format: tokens{c}}
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

// Deliver is the delivery of an endpoint before it is connected.
func (k *Transport) Deliver(r datasheet.Reliability) core.Delivery {
	if r == datasheet.Unreliable {
		return Unreliable{k}
	}
	return Reliable{k}
}
