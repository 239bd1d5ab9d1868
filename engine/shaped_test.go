package engine_test

import (
	"slices"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/speed"
	"github.com/trapeze-nic/trapeze/pipeline"
	"github.com/trapeze-nic/trapeze/wire"
)

// speeds are those of a wire and of the buses at its ends.
type speeds struct {
	rate, bus    int64
	delay, setup time.Duration
	burst        int
	faults       wire.FaultOptions
}

// shaped is an option that wires NICs by memory with speeds, in the time of the world.
func shaped(s speeds) option {
	var ends []*wire.Memory
	return func(c *engine.Config, _ *port) {
		w := c.Host.(*node).w
		if w.idle = 100 * time.Nanosecond; ends == nil {
			a, b := must.Two(wire.NewMemory(wire.MemoryOptions{}))(w.t)
			ends = []*wire.Memory{a, b}
		}
		inner := wire.Port(ends[0])
		if s.faults != (wire.FaultOptions{}) {
			s.faults.Seed++
			faulty := must.Get(wire.NewFault(inner, s.faults))(w.t)
			inner = faulty
		}
		end := must.Get(wire.NewShaper(inner, wire.ShaperOptions{Path: speed.Path{Rate: s.rate, Setup: s.setup}, Delay: s.delay, Burst: s.burst, Clock: c.Clock}))(w.t)
		ends = ends[1:]
		c.Port, c.Pipeline.Burst, c.Pipeline.Bus, c.Pipeline.Setup = end, s.burst, s.bus, s.setup
	}
}

// Cuts of frames of 8 KiB that arrive in bursts of 512 bytes.
const (
	whole    = "8192"
	each512  = "512 512 512 512 512 512 512 512 512 512 512 512 512 512 512 512"
	each1280 = "1280 1280 1280 1280 1280 1280 512"
	doubling = "512 1024 2048 4096 512"
)

// oneBus is a bus of twice the speed of its wire.
var oneBus = speeds{rate: 100e6, bus: 200e6, burst: 512}

// TestPoliciesUnderLoad: what netTx and hostRcv do with a frame that is alone, and with one
// among others, as each policy decides.
func TestPoliciesUnderLoad(t *testing.T) {
	// At the receiver this bus is slower than the wire.
	slow := oneBus
	slow.bus = 50e6
	amp := pipeline.Eager{MinPulse: 128}
	for _, tt := range []struct {
		name             string
		speeds           speeds
		policy           func() pipeline.Policy
		idle, loaded     string // of netTx
		placed, underway string // of hostRcv, likewise
	}{
		{"store and forward", oneBus, func() pipeline.Policy { return pipeline.StoreAndForward{} }, whole, whole, whole, whole},
		{"static", oneBus, func() pipeline.Policy { return pipeline.Static{Pulse: 1280} }, each1280, each1280, each1280, each1280},
		{"amp", oneBus, func() pipeline.Policy { return amp }, doubling, whole, each512, each512},
		{"amp with one buffer", oneBus, func() pipeline.Policy { return pipeline.Within{Policy: amp, Buffers: 1} }, doubling, doubling, each512, each512},
		{"auto", oneBus, func() pipeline.Policy { return pipeline.NewAuto(pipeline.EarlyBytes) }, doubling, whole, each512, each512},
		{"amp without a bus", speeds{rate: 100e6, burst: 512}, func() pipeline.Policy { return amp }, "512 7680", whole, each512, each512},
		{"amp where the bus is the slowest", slow, func() pipeline.Policy { return amp }, each512, each512, each512, each512},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, v, p := pair(t, nil, shaped(tt.speeds), func(c *engine.Config, _ *port) { c.Pipeline.Send, c.Pipeline.Receive = tt.policy(), tt.policy() })
			alone, many := carry(w, v, p, []int{8192}), carry(w, v, p, slices.Repeat([]int{8192}, 12))
			const middle = 8
			for _, c := range []struct{ what, got, want string }{
				{"netTx, idle", alone.cuts(datasheet.EngineNetTx)[0], tt.idle},
				{"netTx, loaded", many.cuts(datasheet.EngineNetTx)[middle], tt.loaded},
				{"hostRcv, idle", alone.cuts(datasheet.EngineHostRcv)[0], tt.placed},
				{"hostRcv, loaded", many.cuts(datasheet.EngineHostRcv)[middle], tt.underway},
				{"hostTx", many.cuts(datasheet.EngineHostTx)[middle], whole},
			} {
				should.Be(t, c.got, c.want, "%s moves", c.what)
			}
		})
	}
}

// TestSlowReceiver: where only the receiver's bus is slower than the wire, amp leaves
// cut-through there.
func TestSlowReceiver(t *testing.T) {
	amp := policies(pipeline.Eager{MinPulse: 128}, pipeline.Eager{MinPulse: 128})
	w, v, p := pair(t, nil, shaped(oneBus), amp, func(c *engine.Config, _ *port) {
		if c.MAC[5] == 2 {
			c.Pipeline.Bus = 60e6
		}
	})
	alone, many := carry(w, v, p, []int{8192}), carry(w, v, p, slices.Repeat([]int{8192}, 16))
	if got := alone.cuts(datasheet.EngineHostRcv)[0]; len(got) < len(doubling) {
		t.Errorf("hostRcv moves %s of a frame that is alone", got)
	}
	should.Be(t, many.cuts(datasheet.EngineHostRcv)[14], whole, "hostRcv moves under load")
	should.Be(t, many.cuts(datasheet.EngineNetTx)[14], whole, "netTx moves under load")
}

// amplify is amp at the host: it answers what the progress counters of the sender say.
func amplify(w *world) func() {
	host := w.a.newPump()
	w.a.e.SetPulses(engine.Transmit, true)
	frame, sent := uint32(0), uint32(0) // what was let go, of which frame
	return func() {
		v := host.progress(engine.Transmit)
		if v.Flags&datasheet.ProgressActive == 0 {
			return
		}
		if v.Frame != frame {
			frame, sent = v.Frame, 0
		}
		if v.Sent < sent {
			return // netTx is busy
		}
		if n := v.Arrived - v.Sent; n > 0 && (n >= 128 || v.Arrived == v.Length) {
			must.Be(w.t, w.a.e.Pulse(engine.Transmit, uint8(frame), n), true, "a pulse of %d bytes is refused: %+v", n, v)
			sent += n
		}
	}
}

// TestAmpEverywhere: amp at the host and amp as a control program decide as amp in the NIC.
func TestAmpEverywhere(t *testing.T) {
	amp := pipeline.Eager{MinPulse: 128}
	both := map[string][2][]string{}
	for name, prepare := range map[string]func(w *world){
		"nic":  func(*world) {},
		"host": func(w *world) { w.relay = amplify(w) },
		"program": func(w *world) {
			w.a.use(&scripted{pulse: func(_ engine.Direction, v pipeline.View, _ uint32) (int, bool) { return amp.Next(v), true }},
				engine.HookPulseTransmit)
		},
	} {
		builtIn := pipeline.Policy(amp)
		if name != "nic" {
			builtIn = pipeline.StoreAndForward{}
		}
		w, v, p := pair(t, nil, shaped(oneBus), policies(builtIn, amp))
		prepare(w)
		for load, count := range []int{1, 12} {
			by := both[name]
			by[load] = carry(w, v, p, slices.Repeat([]int{8192}, count)).cuts(datasheet.EngineNetTx)
			both[name] = by
		}
		if d := w.a.e.DMAState(); d.Timeouts+d.Refused != 0 {
			t.Errorf("%s: %+v", name, d)
		}
	}
	for _, other := range []string{"host", "program"} {
		for load, name := range []string{"idle", "loaded"} {
			if got, want := both[other][load], both["nic"][load]; !slices.Equal(got, want) {
				t.Errorf("%s, at the %s: %q, in the NIC %q", name, other, got, want)
			}
		}
	}
}

// TestSuspendedInAFrame: a program is exchanged while netTx moves a frame: the rest of it waits, and arrives.
func TestSuspendedInAFrame(t *testing.T) {
	levels(t, func(t *testing.T, _ datasheet.Reliability, change func(*datasheet.CreateEndpointBody)) {
		amp := pipeline.Eager{MinPulse: 128}
		w, v, p := pair(t, change, shaped(oneBus), policies(amp, amp))
		w.a.use(passing(), engine.HookPulseTransmit)
		m := newBatch(v, p, 20_000)
		w.settle()
		m.post()
		w.run("a transfer", func() bool {
			s := w.a.e.DMAState().Movers[engine.Transmit]
			return s.Active && s.Sent > 0 && s.Sent < s.Length
		})
		w.a.suspend(3 * time.Millisecond)
		later := w.now + time.Millisecond
		w.run("time", func() bool { return w.now > later })
		should.Be(t, m.receives[0].Status().Done(), false, "the message has passed")
		m.mustArrive()
	})
}

// TestOthersBetweenFrames: while frames of one connection keep the wire busy, a second
// connection is made and carries a message.
func TestOthersBetweenFrames(t *testing.T) {
	for name, policy := range map[string]pipeline.Policy{"amp": pipeline.Eager{MinPulse: 128}, "static": pipeline.Static{Pulse: 512}} {
		w, v, p := pair(t, nil, memory(4<<20), shaped(oneBus), policies(policy, policy))
		const size = 100_000
		m := newBatch(v, p, slices.Repeat([]int{size}, 20)...)
		w.settle()
		m.post()
		w.mustServe(100)
		should.Be(t, m.done(), false, "%s: the wire was not busy", name)
		m.mustArrive()
		should.Be(t, w.a.e.Counter(datasheet.CounterFramesRetransmitted), 0, "%s: frames were sent again", name)
	}
}

// TestLossOnShapedWires: with frames lost, doubled and damaged all that is sent arrives.
func TestLossOnShapedWires(t *testing.T) {
	w, v, p := pair(t, nil, memory(4<<20), shaped(speeds{rate: 200e6, bus: 300e6, delay: 5 * time.Microsecond, setup: 500,
		faults: wire.FaultOptions{Loss: 0.1, Duplicate: 0.05, Reorder: 0.05, Corrupt: 0.05}}))
	should.Be(t, w.a.e.Moving(), false, "something moves before the first message")
	carry(w, v, p, slices.Repeat([]int{50_000}, 30))
	if w.a.e.Counter(datasheet.CounterFramesRetransmitted) == 0 {
		t.Error("no frame was lost")
	}
}
