package engine_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// impostor sends to p, on the second NIC of a world, what its peer might send that
// does not keep the rules.
type impostor struct {
	w    *world
	v, p *vi
	// good is what the headers of all its data frames have in common; its PSN is that
	// of the connection's first one.
	good datasheet.Header
}

// newImpostor makes a world with a connected VI at each end, and learns the
// connection's key from the frame with which the client confirms it.
func newImpostor(t testing.TB, change func(n *node, b *datasheet.CreateEndpointBody), options ...option) *impostor {
	t.Helper()
	x := &impostor{}
	x.w = newWorld(t, append(options, func(c *engine.Config, p *port) {
		if c.MAC[5] == 1 {
			p.spoil = func(b []byte) [][]byte { x.good = *datasheet.HeaderAt(b); return [][]byte{b} }
		}
	})...)
	create := func(n *node) *vi {
		return n.newVI(n.memory(0, 0), func(b *datasheet.CreateEndpointBody) {
			if change != nil {
				change(n, b)
			}
		})
	}
	x.v, x.p = create(x.w.a), create(x.w.b)
	connect(x.v, x.p)
	x.w.settle()
	x.w.a.port.spoil = nil
	x.good.Type, x.good.Flags, x.good.Extent, x.good.Offset = datasheet.FrameData, 0, 0, 0
	return x
}

// send has a data frame arrive: number counts PSNs from the connection's first, and
// is for reliable ones only.
func (x *impostor) send(number uint32, flags datasheet.FrameFlags, message, extent, offset uint32, payload []byte) {
	b := alignedBytes(datasheet.HeaderSize + len(payload))
	copy(b[datasheet.HeaderSize:], payload)
	h := datasheet.HeaderAt(b)
	*h = x.good
	h.PSN, h.Flags, h.Length = h.PSN+number, flags, uint16(len(payload))
	h.Message, h.Extent, h.Offset = message, extent, offset
	x.arrive(b)
}

// arrive has a frame arrive.
func (x *impostor) arrive(b []byte) {
	*x.w.b.port.in = append(*x.w.b.port.in, b)
	for range 4 {
		x.w.b.e.Step()
	}
}

// mustServe checks that p can be disconnected and destroyed, which flushes what was
// posted, and that another connection of the NIC works.
func (x *impostor) mustServe(t testing.TB) {
	t.Helper()
	for _, v := range []*vi{x.p, x.v} {
		do(v.n, datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: v.id})
	}
	for i, d := range x.p.recv.posted {
		should.Be(t, d.Status().Done(), true, "receive %d is not completed", i)
	}
	should.Be(t, x.p.query().RecvCompleted, x.p.recv.producer, "receives completed")
	do(x.p.n, datasheet.OpDestroyEndpoint, datasheet.EndpointBody{Endpoint: x.p.id})
	x.w.mustServe(5)
}
