package engine_test

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

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
	a, b, err := wire.NewMemory(wire.MemoryOptions{MTU: size + datasheet.HeaderSize})
	if err != nil {
		t.Fatal(err)
	}
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
	} {
		for _, meddled := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, log and pulses %v", name, meddled), func(t *testing.T) {
				w := newWorld(t, onMemory(t, 8192), o, bursts(1024))
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
				if n := testing.AllocsPerRun(100, one); n != 0 {
					t.Errorf("%v allocations a message", n)
				}
			})
		}
	}
}

// BenchmarkEcho is the time that a message takes one way through two engines and
// the wire in memory between them, which are stepped in turn by one goroutine
// ("inline") or each by its own ("apart": two processors are needed). A frame
// takes all of a message.
func BenchmarkEcho(b *testing.B) {
	for _, apart := range []bool{false, true} {
		for _, size := range []int{64, 8 << 10, 0xff00} {
			for _, p := range []struct {
				name   string
				policy pipeline.Policy
				burst  int
			}{
				{"store-and-forward", pipeline.StoreAndForward{}, 0},
				{"default", nil, 0},
				{"bursts-of-2048", pipeline.Eager{MinPulse: 2048}, 2048},
			} {
				name := "inline"
				if apart {
					name = "apart"
				}
				b.Run(fmt.Sprintf("%s/%d/%s", name, size, p.name), func(b *testing.B) {
					w := newWorld(b, onMemory(b, max(size, 8192)), policies(p.policy, p.policy), bursts(p.burst))
					v, q := w.a.newVI(w.a.memory(0, 0), nil), w.b.newVI(w.b.memory(0, 0), nil)
					connect(v, q)
					benchmarkEcho(b, w, v.newEcho(size), q.newEcho(size), apart)
				})
			}
		}
	}
}

func benchmarkEcho(b *testing.B, w *world, x, y *echo, apart bool) {
	w.settle()
	var stop atomic.Bool
	stopped := make(chan struct{})
	other := func() {
		w.b.e.Step()
		if y.received() {
			y.send()
		}
	}
	if apart {
		go func() {
			defer close(stopped)
			for !stop.Load() {
				other()
			}
		}()
		defer func() {
			stop.Store(true)
			<-stopped
		}()
	}
	best := time.Duration(1 << 62)
	for b.Loop() {
		start := time.Now()
		x.send()
		for !x.received() {
			w.a.e.Step()
			if !apart {
				other()
			} else if runtime.GOMAXPROCS(0) == 1 {
				runtime.Gosched()
			}
		}
		best = min(best, time.Since(start))
	}
	b.ReportMetric(float64(best)/2, "min-ns/one-way")
	b.ReportMetric(float64(b.Elapsed())/float64(2*b.N), "ns/one-way")
}
