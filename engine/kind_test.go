package engine

import (
	"testing"

	"github.com/trapeze-nic/trapeze/descriptors"
)

func TestNewKind(t *testing.T) {
	e := &Engine{}
	reliable, unreliable := reliableVI{vi{&e.core}}, unreliableVI{vi{&e.core}}
	for _, c := range []struct {
		body descriptors.CreateEndpointBody
		want kind
		why  refusal
	}{
		{descriptors.CreateEndpointBody{Kind: descriptors.KindVI, Reliability: descriptors.ReliableDelivery}, reliable, refusal{}},
		{descriptors.CreateEndpointBody{Kind: descriptors.KindVI, Reliability: descriptors.Unreliable}, unreliable, refusal{}},
		{descriptors.CreateEndpointBody{Kind: descriptors.KindFrame}, frames{unreliable}, refusal{}},
		{descriptors.CreateEndpointBody{Kind: descriptors.KindReceiveQueue}, receiveQueue{unreliable}, refusal{}},
		{descriptors.CreateEndpointBody{Kind: descriptors.KindRing}, nil, refusal{descriptors.ResultNotSupported, fieldKind}},
		{descriptors.CreateEndpointBody{Kind: descriptors.KindChannel}, nil, refusal{descriptors.ResultNotSupported, fieldKind}},
		{descriptors.CreateEndpointBody{Kind: 200}, nil, refusal{descriptors.ResultInvalidParameter, fieldKind}},
	} {
		if got, why := newKind(e, &c.body); got != c.want || why != c.why {
			t.Errorf("kind %d, reliability %d: %T, %+v", c.body.Kind, c.body.Reliability, got, why)
		}
	}
}

// TestTakeRefusesUnknownTypes: a frame of a type that a connection does not have says
// nothing about the connection.
func TestTakeRefusesUnknownTypes(t *testing.T) {
	c, _ := newTestClock()
	e := &Engine{core: core{clock: *c}}
	for _, frame := range []descriptors.FrameType{0, descriptors.FrameConnectRequest, 200} {
		ep := &endpoint{rel: &reliable{nic: &e.core, window: &window{}, nxt: 1}, unrel: &unreliable{}}
		h := &descriptors.Header{Type: frame, Ack: 1, Credit: 5}
		if (reliableVI{vi{&e.core}}).take(ep, h, nil) != refused || (unreliableVI{vi{&e.core}}).take(ep, h, nil) != refused {
			t.Errorf("a frame of type %d was taken", frame)
		}
		if ep.rel.una != 0 || ep.rel.limit != 0 {
			t.Errorf("a frame of type %d acknowledged something", frame)
		}
	}
}
