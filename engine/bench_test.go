package engine_test

import (
	"fmt"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/pipeline"
	"github.com/trapeze-nic/trapeze/wire"
)

// echo is one end of a ping-pong of messages of one size.
type echo struct {
	*vi
	s, r *descriptors.Descriptor
}

func (v *vi) newEcho(size int) *echo {
	s, _ := v.descriptor(size)
	r, _ := v.descriptor(size)
	e := &echo{vi: v, s: s, r: r}
	e.again(&e.recv, r, datasheet.DoorbellRecv)
	return e
}

// again posts a descriptor that has been used, without making anything.
func (e *echo) again(q *queue, d *descriptors.Descriptor, kind uint64) {
	d.Rearm()
	q.tokens[q.producer%uint32(len(q.tokens))] = d.Token()
	q.producer++
	e.n.e.Doorbell(datasheet.EndpointPage(e.id)+kind, q.producer)
}

func (e *echo) send() { e.again(&e.vi.send, e.s, datasheet.DoorbellSend) }

// received takes a message if there is one, and makes room for the next.
func (e *echo) received() bool {
	if !e.r.Status().Done() {
		return false
	}
	e.again(&e.recv, e.r, datasheet.DoorbellRecv)
	return true
}

// onMemory puts both NICs on a wire in memory that takes frames of size bytes,
// and on the real clock.
func onMemory(t testing.TB, size int) option {
	a, b := must.Two(wire.NewMemory(wire.MemoryOptions{MTU: size + datasheet.HeaderSize}))(t)
	ends := []engine.Port{a, b}
	return func(c *engine.Config, _ *port) {
		c.Port, ends = ends[0], ends[1:]
		c.Clock = nil
		memory(2<<20)(c, nil)
	}
}

// TestNothingIsAllocated sends messages under every kind of policy and placement.
func TestNothingIsAllocated(t *testing.T) {
	for name, o := range map[string]option{
		"default":           policies(nil, nil),
		"store and forward": policies(pipeline.StoreAndForward{}, pipeline.StoreAndForward{}),
		"static":            policies(pipeline.Static{Pulse: 700}, pipeline.Static{Pulse: 900}),
		"learning":          policies(pipeline.NewAuto(pipeline.EarlyBytes), pipeline.NewAuto(pipeline.FewTransfers)),
		"lent":              nil,
	} {
		for _, meddled := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, log and pulses %v", name, meddled), func(t *testing.T) {
				options := []option{onMemory(t, 8192), o, bursts(1024)}
				if o == nil {
					options = []option{lending(8192, new([2]*lender)), onMemory(t, 8192), overMemory}
				}
				w := newWorld(t, options...)
				v, p := w.a.newVI(w.a.memory(0, 0), nil), w.b.newVI(w.b.memory(0, 0), nil)
				connect(v, p)
				if meddled {
					for _, n := range []*node{w.a, w.b} {
						n.newLog(10)
						n.newPump()
						n.e.SetPulses(engine.Transmit, true)
						n.e.SetPulses(engine.Receive, true)
					}
				}
				a, b := v.newEcho(5000), p.newEcho(5000)
				w.settle()
				pump := func(n *node) {
					for d, s := range n.e.DMAState().Movers {
						if there := s.Arrived - s.Sent; s.Held && there > 0 {
							n.e.Pulse(engine.Direction(d), uint8(s.Frame), uint32(there))
						}
					}
				}
				one := func() {
					a.send()
					for arrived := false; !arrived || !a.s.Status().Done(); arrived = arrived || b.received() {
						w.a.e.Step()
						w.b.e.Step()
						if meddled {
							pump(w.a)
							pump(w.b)
						}
					}
				}
				// The engine keeps the segment list of each message of a window.
				for range 1 << queueLog2 {
					one()
				}
				should.Be(t, testing.AllocsPerRun(100, one), 0, "allocations a message")
				if name == "lent" && !meddled && w.a.lender.lent == 0 {
					t.Error("nothing was lent")
				}
			})
		}
	}
}
