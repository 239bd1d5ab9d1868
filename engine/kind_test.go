package engine

import (
	"testing"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

func TestNewKind(t *testing.T) {
	e := &Engine{}
	reliable, unreliable := reliableVI{vi{&e.core}}, unreliableVI{vi{&e.core}}
	for _, c := range []struct {
		body datasheet.CreateEndpointBody
		want kind
		why  refusal
	}{
		{datasheet.CreateEndpointBody{Kind: datasheet.KindVI, Reliability: datasheet.ReliableDelivery}, reliable, refusal{}},
		{datasheet.CreateEndpointBody{Kind: datasheet.KindVI, Reliability: datasheet.Unreliable}, unreliable, refusal{}},
		{datasheet.CreateEndpointBody{Kind: datasheet.KindFrame}, frames{unreliable}, refusal{}},
		{datasheet.CreateEndpointBody{Kind: datasheet.KindReceiveQueue}, receiveQueue{unreliable}, refusal{}},
		{datasheet.CreateEndpointBody{Kind: datasheet.KindRing}, nil, refusal{datasheet.ResultNotSupported, fieldKind}},
		{datasheet.CreateEndpointBody{Kind: datasheet.KindChannel}, nil, refusal{datasheet.ResultNotSupported, fieldKind}},
		{datasheet.CreateEndpointBody{Kind: 200}, nil, refusal{datasheet.ResultInvalidParameter, fieldKind}},
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
	for _, frame := range []datasheet.FrameType{0, datasheet.FrameConnectRequest, 200} {
		ep := &endpoint{rel: &reliable{nic: &e.core, window: &window{}, nxt: 1}, unrel: &unreliable{}}
		h := &datasheet.Header{Type: frame, Ack: 1, Credit: 5}
		if (reliableVI{vi{&e.core}}).take(ep, h, nil) != refused || (unreliableVI{vi{&e.core}}).take(ep, h, nil) != refused {
			t.Errorf("a frame of type %d was taken", frame)
		}
		if ep.rel.una != 0 || ep.rel.limit != 0 {
			t.Errorf("a frame of type %d acknowledged something", frame)
		}
	}
}
