package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/pipeline"
	"github.com/trapeze-nic/trapeze/wire"
)

// speeds are those of a wire and of the buses at its ends.
type speeds struct {
	rate, bus int64
	delay     time.Duration
	setup     time.Duration
	burst     int
}

// shaped is an option that wires NICs by memory with speeds, in the time of the world.
func shaped(s speeds) option {
	var ends []*wire.Memory
	return func(c *engine.Config, p *port) {
		w := c.Host.(*node).w
		if w.idle = 100 * time.Nanosecond; ends == nil {
			a, b, err := wire.NewMemory(wire.MemoryOptions{})
			if err != nil {
				w.t.Fatal(err)
			}
			ends = []*wire.Memory{a, b}
		}
		end, err := wire.NewShaper(ends[0], wire.ShaperOptions{Rate: s.rate, Delay: s.delay, Setup: s.setup, Burst: s.burst, Clock: c.Clock})
		if err != nil {
			w.t.Fatal(err)
		}
		ends = ends[1:]
		c.Port, c.Pipeline.Burst, c.Pipeline.Bus, c.Pipeline.Setup = end, s.burst, s.bus, s.setup
	}
}

// moved sends count messages of size bytes at once, and returns what each engine moved.
func moved(w *world, v, p *vi, count, size int) (from, to [descriptors.DMAEngineCount][]string) {
	w.t.Helper()
	a, b := w.a.newLog(10), w.b.newLog(10)
	var sends, receives []*descriptors.Descriptor
	var in, out [][]byte
	for i := range count {
		s, o := v.descriptor(size)
		r, n := p.descriptor(size)
		copy(o[0], pattern(size, uint64(i)))
		sends, receives, in, out = append(sends, s), append(receives, r), append(in, n[0]), append(out, o[0])
	}
	p.postRecv(receives...)
	w.run("credit", func() bool { w.settle(); return true })
	v.postSend(sends...)
	w.run("the messages", func() bool {
		return sends[count-1].Status().Done() && receives[count-1].Status().Done() && w.a.e.Quiet()
	})
	for i := range in {
		mustEqual(w.t, in[i], out[i])
	}
	return a.all(), b.all()
}

// sizes are the bytes of the transfers of one frame.
func sizes(log []string, packet int) (all []string) {
	for _, l := range log {
		if n, ok := strings.CutPrefix(l, fmt.Sprintf("%d:", packet)); ok {
			all = append(all, n)
		}
	}
	return all
}

func TestTry(t *testing.T) {
	for _, s := range []speeds{{rate: 100e6, burst: 512}, {rate: 100e6, burst: 512, bus: 200e6}, {rate: 100e6, burst: 512, bus: 80e6}, {rate: 100e6, burst: 512, bus: 110e6, setup: 1000}} {
		for name, policy := range map[string]func() pipeline.Policy{
			"s&f":    func() pipeline.Policy { return pipeline.StoreAndForward{} },
			"static": func() pipeline.Policy { return pipeline.Static{Pulse: 1280} },
			"cut":    func() pipeline.Policy { return pipeline.Alone{Policy: pipeline.Static{Pulse: 1280}} },
			"amp":    func() pipeline.Policy { return pipeline.Eager{MinPulse: 128} },
			"pure":   func() pipeline.Policy { return pipeline.Alone{Policy: pipeline.Eager{MinPulse: 128}} },
			"auto":   func() pipeline.Policy { return pipeline.NewAuto(pipeline.EarlyBytes) },
		} {
			w, v, p := pair(t, nil, shaped(s), func(c *engine.Config, _ *port) { c.Pipeline.Send, c.Pipeline.Receive = policy(), policy() })
			before := w.now
			from, to := moved(w, v, p, 1, 8192)
			idle := w.now - before
			t.Logf("%v %s idle %v: netTx %v hostRcv %v", s, name, idle, from[descriptors.EngineNetTx], to[descriptors.EngineHostRcv])
			before = w.now
			from, to = moved(w, v, p, 10, 8192)
			t.Logf("%v %s loaded %v: netTx %v hostRcv %v", s, name, w.now-before, sizes(from[descriptors.EngineNetTx], 7), sizes(to[descriptors.EngineHostRcv], 7))
		}
	}
	_ = slices.Equal[[]int]
}
