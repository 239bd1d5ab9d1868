package engine_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
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
			a, b, err := wire.NewMemory(wire.MemoryOptions{})
			if err != nil {
				w.t.Fatal(err)
			}
			ends = []*wire.Memory{a, b}
		}
		inner := wire.Port(ends[0])
		if s.faults != (wire.FaultOptions{}) {
			s.faults.Seed++
			faulty, err := wire.NewFault(inner, s.faults)
			if err != nil {
				w.t.Fatal(err)
			}
			inner = faulty
		}
		end, err := wire.NewShaper(inner, wire.ShaperOptions{Path: speed.Path{Rate: s.rate, Setup: s.setup}, Delay: s.delay, Burst: s.burst, Clock: c.Clock})
		if err != nil {
			w.t.Fatal(err)
		}
		ends = ends[1:]
		c.Port, c.Pipeline.Burst, c.Pipeline.Bus, c.Pipeline.Setup = end, s.burst, s.bus, s.setup
	}
}

// moved sends count messages of size bytes at once, and returns the records of each engine
// and their sizes by frame.
func moved(w *world, v, p *vi, count, size int) (by [datasheet.DMAEngineCount][]string) {
	w.t.Helper()
	a, b := w.a.newLog(12), w.b.newLog(12)
	var sends, receives []*descriptors.Descriptor
	var in, out [][]byte
	for i := range count {
		s, o := v.descriptor(size)
		r, n := p.descriptor(size)
		copy(o[0], pattern(size, uint64(i)))
		sends, receives, in, out = append(sends, s), append(receives, r), append(in, n[0]), append(out, o[0])
	}
	p.postRecv(receives...)
	credit := w.now + 2*time.Millisecond // for the acknowledgement that gives it
	w.run("credit", func() bool { return w.now > credit })
	v.postSend(sends...)
	w.run("the messages", func() bool {
		return sends[count-1].Status().Done() && receives[count-1].Status().Done() && w.a.e.Quiet()
	})
	for i := range in {
		if sends[i].Status().Failed() || receives[i].Status().Failed() {
			w.t.Fatalf("message %d: %v, %v", i, sends[i].Status(), receives[i].Status())
		}
		mustEqual(w.t, in[i], out[i])
	}
	by = a.all()
	for e, records := range b.all() {
		by[e] = append(by[e], records...)
	}
	return by
}

// sizes are the bytes of the transfers of one frame.
func sizes(records []string, packet int) string {
	var all []string
	for _, r := range records {
		if n, ok := strings.CutPrefix(r, fmt.Sprintf("%d:", packet)); ok {
			all = append(all, n)
		}
	}
	return strings.Join(all, " ")
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
		{"amp with one buffer", oneBus, func() pipeline.Policy { return pipeline.Alone{Policy: amp} }, doubling, doubling, each512, each512},
		{"auto", oneBus, func() pipeline.Policy { return pipeline.NewAuto(pipeline.EarlyBytes) }, doubling, whole, each512, each512},
		{"amp without a bus", speeds{rate: 100e6, burst: 512}, func() pipeline.Policy { return amp }, "512 7680", whole, each512, each512},
		{"amp where the bus is the slowest", slow, func() pipeline.Policy { return amp }, each512, each512, each512, each512},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, v, p := pair(t, nil, shaped(tt.speeds), func(c *engine.Config, _ *port) { c.Pipeline.Send, c.Pipeline.Receive = tt.policy(), tt.policy() })
			alone := moved(w, v, p, 1, 8192)
			many := moved(w, v, p, 12, 8192)
			const middle = 8
			for _, c := range []struct{ what, got, want string }{
				{"netTx, idle", sizes(alone[datasheet.EngineNetTx], 0), tt.idle},
				{"netTx, loaded", sizes(many[datasheet.EngineNetTx], middle), tt.loaded},
				{"hostRcv, idle", sizes(alone[datasheet.EngineHostRcv], 0), tt.placed},
				{"hostRcv, loaded", sizes(many[datasheet.EngineHostRcv], middle), tt.underway},
				{"hostTx", sizes(many[datasheet.EngineHostTx], middle), whole},
			} {
				if c.got != c.want {
					t.Errorf("%s moves %s, want %s", c.what, c.got, c.want)
				}
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
	alone, many := moved(w, v, p, 1, 8192), moved(w, v, p, 16, 8192)
	if got := sizes(alone[datasheet.EngineHostRcv], 0); len(got) < len(doubling) {
		t.Errorf("hostRcv moves %s of a frame that is alone", got)
	}
	if got := sizes(many[datasheet.EngineHostRcv], 14); got != whole {
		t.Errorf("hostRcv moves %s under load, want %s", got, whole)
	}
	if got := sizes(many[datasheet.EngineNetTx], 14); got != whole {
		t.Errorf("netTx moves %s under load, want %s", got, whole)
	}
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
			if !w.a.e.Pulse(engine.Transmit, uint8(frame), n) {
				w.t.Fatalf("a pulse of %d bytes is refused: %+v", n, v)
			}
			sent += n
		}
	}
}

// TestAmpEverywhere: amp at the host and amp as a control program decide as amp in the NIC.
func TestAmpEverywhere(t *testing.T) {
	amp := pipeline.Eager{MinPulse: 128}
	both := map[string][2][datasheet.DMAEngineCount][]string{}
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
		both[name] = [2][datasheet.DMAEngineCount][]string{moved(w, v, p, 1, 8192), moved(w, v, p, 12, 8192)}
		if d := w.a.e.DMAState(); d.Timeouts+d.Refused != 0 {
			t.Errorf("%s: %+v", name, d)
		}
	}
	for _, other := range []string{"host", "program"} {
		for load, name := range []string{"idle", "loaded"} {
			got, want := both[other][load][datasheet.EngineNetTx], both["nic"][load][datasheet.EngineNetTx]
			if !slices.Equal(got, want) {
				t.Errorf("%s, at the %s: %q, in the NIC %q", name, other, got, want)
			}
		}
	}
}

// midFrame begins a message of size bytes and steps until netTx moves a part of its first
// frame, but not yet the last.
func midFrame(w *world, v, p *vi, size int) (s, r *descriptors.Descriptor, in []byte) {
	w.t.Helper()
	s, out := v.descriptor(size)
	r, bufs := p.descriptor(size)
	copy(out[0], pattern(size, 9))
	p.postRecv(r)
	w.run("credit", func() bool { w.settle(); return true })
	v.postSend(s)
	w.run("a transfer", func() bool {
		m := w.a.e.DMAState().Movers[engine.Transmit]
		return m.Active && m.Sent > 0 && m.Sent < m.Length
	})
	return s, r, bufs[0]
}

// TestEndsWhileNetTxIsBusy ends a connection, resets a NIC, exchanges a program and closes the
// wire while netTx moves a frame: descriptors come back, their buffers are not written to
// afterwards, and the NICs go on.
func TestEndsWhileNetTxIsBusy(t *testing.T) {
	levels(t, func(t *testing.T, level datasheet.Reliability, change func(*datasheet.CreateEndpointBody)) {
		amp := policies(pipeline.Eager{MinPulse: 128}, pipeline.Eager{MinPulse: 128})
		const size = 20_000
		for _, by := range []string{"sender", "receiver"} {
			w, v, p := pair(t, change, shaped(oneBus), amp)
			s, r, in := midFrame(w, v, p, size)
			leaver, other := v, p
			if by == "receiver" {
				leaver, other = p, v
			}
			do(leaver.n, datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: leaver.id})
			w.run("the other's notice", func() bool { return other.state() == datasheet.StateError })
			if !s.Status().Failed() || !r.Status().Failed() {
				t.Fatalf("%s leaves: sent %v, received %v", by, s.Status(), r.Status())
			}
			clear(in)
			later := w.now + 10*time.Millisecond
			w.run("time", func() bool { return w.now > later })
			if !bytes.Equal(in, make([]byte, size)) {
				t.Fatalf("%s leaves: a buffer was written after its descriptor came back", by)
			}
			do(other.n, datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: other.id})
			connect(v, p)
			if s, r, got := message(v, p, pattern(size, 3)); s.Failed() || r.Failed() || !bytes.Equal(got, pattern(size, 3)) {
				t.Fatalf("%s leaves: %v, %v", by, s, r)
			}
		}
		t.Run("reset", func(t *testing.T) {
			w, v, p := pair(t, change, shaped(oneBus), amp)
			_, r, in := midFrame(w, v, p, size)
			w.a.e.Reset()
			if m := w.a.e.DMAState().Movers[engine.Transmit]; m.Active || w.a.e.Moving() {
				t.Errorf("after the reset: %+v, moving %v", m, w.a.e.Moving())
			}
			do(p.n, datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: p.id})
			if !r.Status().Done() {
				t.Fatal("the receive has not come back")
			}
			clear(in)
			x, y := w.a.newVI(w.a.memory(0, 0), change), w.b.newVI(p.handle, change)
			connect(x, y)
			if s, r, got := message(x, y, pattern(size, 3)); s.Failed() || r.Failed() || !bytes.Equal(got, pattern(size, 3)) {
				t.Fatalf("%v, %v", s, r)
			}
			if !bytes.Equal(in, make([]byte, size)) {
				t.Fatal("a buffer was written after its descriptor came back")
			}
		})
		t.Run("suspension", func(t *testing.T) {
			w, v, p := pair(t, change, shaped(oneBus), amp)
			w.a.use(passing(), engine.HookPulseTransmit)
			s, r, in := midFrame(w, v, p, size)
			w.a.suspend(3 * time.Millisecond)
			later := w.now + time.Millisecond
			w.run("time", func() bool { return w.now > later })
			if r.Status().Done() {
				t.Error("the message has passed")
			}
			w.run("the message", func() bool { return s.Status().Done() && r.Status().Done() })
			mustEqual(t, in, pattern(size, 9))
		})
	})
}

// TestPeerDiesInAFrame: the sender's wire breaks off in the middle of a frame. The receiver's
// engine gives it up, and its connection ends in the time of a dead peer.
func TestPeerDiesInAFrame(t *testing.T) {
	w, v, p := pair(t, nil, shaped(oneBus), policies(pipeline.Eager{MinPulse: 128}, pipeline.Eager{MinPulse: 128}))
	_, r, _ := midFrame(w, v, p, 20_000)
	w.run("a part of the frame", func() bool { return w.b.e.DMAState().Movers[engine.Receive].Sent > 0 })
	w.idle = time.Millisecond
	for end := w.now + 5*time.Second; !r.Status().Done(); w.now += 100 * time.Microsecond {
		if w.b.e.Step(); w.now > end { // the sender is not stepped any more
			t.Fatal("the receive has not come back")
		}
	}
	if m := w.b.e.DMAState().Movers[engine.Receive]; m.Active || !r.Status().Failed() || p.state() != datasheet.StateError {
		t.Errorf("%+v, %v, %v", m, r.Status(), p.state())
	}
}

// TestOthersBetweenFrames: while frames of one connection keep the wire busy, a second
// connection is made and carries a message.
func TestOthersBetweenFrames(t *testing.T) {
	for name, policy := range map[string]pipeline.Policy{"amp": pipeline.Eager{MinPulse: 128}, "static": pipeline.Static{Pulse: 512}} {
		w, v, p := pair(t, nil, memory(4<<20), shaped(oneBus), policies(policy, policy))
		const size = 100_000
		var sends []*descriptors.Descriptor
		for range 20 {
			s, _ := v.descriptor(size)
			r, _ := p.descriptor(size)
			p.postRecv(r)
			sends = append(sends, s)
		}
		w.run("credit", func() bool { w.settle(); return true })
		v.postSend(sends...)
		x, y := w.a.newVI(v.handle, nil), w.b.newVI(p.handle, nil)
		connect(x, y)
		if s, r, got := message(x, y, pattern(100, 1)); s.Failed() || r.Failed() || !bytes.Equal(got, pattern(100, 1)) {
			t.Fatalf("%s: %v, %v", name, s, r)
		}
		if sends[len(sends)-1].Status().Done() {
			t.Errorf("%s: the wire was not busy", name)
		}
		w.run("the other messages", func() bool { return sends[len(sends)-1].Status().Done() })
		if n := w.a.e.Counter(datasheet.CounterFramesRetransmitted); n != 0 {
			t.Errorf("%s: %d frames were sent again", name, n)
		}
	}
}

// TestLossOnShapedWires: with frames lost, doubled and damaged all that is sent arrives.
func TestLossOnShapedWires(t *testing.T) {
	w, v, p := pair(t, nil, memory(4<<20), shaped(speeds{rate: 200e6, bus: 300e6, delay: 5 * time.Microsecond, setup: 500,
		faults: wire.FaultOptions{Loss: 0.1, Duplicate: 0.05, Reorder: 0.05, Corrupt: 0.05}}))
	if w.a.e.Moving() {
		t.Error("something moves before the first message")
	}
	moved(w, v, p, 30, 50_000)
	if w.a.e.Counter(datasheet.CounterFramesRetransmitted) == 0 {
		t.Error("no frame was lost")
	}
}
