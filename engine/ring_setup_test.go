package engine_test

import (
	"math/rand/v2"
	"testing"

	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

func (r *ring) destroy() {
	r.n.w.t.Helper()
	do(r.n, datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: r.id})
	do(r.n, datasheet.OpDestroyEndpoint, datasheet.EndpointBody{Endpoint: r.id})
}

// A storm of rings that come and go, some with messages under way, leaves nothing behind: all
// device memory is free again, and so are tags and regions.
func TestRingsComeAndGo(t *testing.T) {
	w := newRingWorld(t, func(c *engine.Config, _ *port) {
		c.Limits = engine.DefaultLimits()
		c.Limits.Regions = 40
	})
	r := rand.New(rand.NewPCG(1, 2))
	a, b := w.a.memory(0, 0), w.b.memory(0, 0)
	free := [2]uint32{w.a.e.FreeSRAM(), w.b.e.FreeSRAM()}
	var live [][2]*ring
	full := 0
	for range 600 {
		if len(live) > 0 && (r.IntN(3) == 0 || len(live) == 30) {
			i := r.IntN(len(live))
			live[i][0].destroy()
			live[i][1].destroy()
			live = append(live[:i], live[i+1:]...)
			continue
		}
		body := ringBody(func(b *datasheet.CreateEndpointBody) {
			b.SendLog2, b.RecvLog2 = uint8(1+r.IntN(9)), uint8(1+r.IntN(9))
			if r.IntN(2) == 0 {
				b.Reliability = datasheet.ReliableDelivery
			}
		})
		before := w.a.e.FreeSRAM()
		if reply := w.a.wait(start(w.a, datasheet.OpCreateEndpoint, body)); reply.Result == datasheet.ResultResource {
			if full++; w.a.e.FreeSRAM() != before {
				t.Fatal("a ring that was refused has taken device memory")
			}
			continue
		} else if reply.Result == datasheet.ResultSuccess {
			do(w.a, datasheet.OpDestroyEndpoint, datasheet.EndpointBody{Endpoint: datasheet.Reply[datasheet.EndpointCreated](&reply).Endpoint})
		}
		same := func(b *datasheet.CreateEndpointBody) { *b = body }
		if w.b.e.FreeSRAM() < before { // it may have no room for it, or no piece
			continue
		}
		reply := w.b.wait(start(w.b, datasheet.OpCreateEndpoint, body))
		if reply.Result != datasheet.ResultSuccess {
			continue
		}
		do(w.b, datasheet.OpDestroyEndpoint, datasheet.EndpointBody{Endpoint: datasheet.Reply[datasheet.EndpointCreated](&reply).Endpoint})
		x, y := w.a.newRing(a, same), w.b.newRing(b, same)
		connect(&vi{n: x.n, id: x.id}, &vi{n: y.n, id: y.id})
		live = append(live, [2]*ring{x, y})
		w.a.brk, w.b.brk = 0, 0
		y.receive(5000)
		x.transmit(pattern(ringMessage, 1), pattern(5000, 2), 0)
		for range r.IntN(8) {
			w.a.e.Step()
			w.b.e.Step()
		}
	}
	if full == 0 {
		t.Error("device memory never was too little")
	}
	for _, p := range live {
		p[0].destroy()
		p[1].destroy()
	}
	if w.a.e.FreeSRAM() != free[0] || w.b.e.FreeSRAM() != free[1] {
		t.Errorf("%d and %d bytes are free, of %v", w.a.e.FreeSRAM(), w.b.e.FreeSRAM(), free)
	}
	w.a.newRing(a, func(b *datasheet.CreateEndpointBody) { b.SendLog2, b.RecvLog2 = 11, 11 }) // all of it, in one piece
}
