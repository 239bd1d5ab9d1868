package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/speed"
	"github.com/trapeze-nic/trapeze/pipeline"
	"github.com/trapeze-nic/trapeze/wire"
)

// speeds are those of a wire and of the buses at its ends.
type speeds struct {
	rate, bus    int64
	delay, setup time.Duration
	burst        int
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
		end, err := wire.NewShaper(ends[0], wire.ShaperOptions{Path: speed.Path{Rate: s.rate, Setup: s.setup}, Delay: s.delay, Burst: s.burst, Clock: c.Clock})
		if err != nil {
			w.t.Fatal(err)
		}
		ends = ends[1:]
		c.Port, c.Pipeline.Burst, c.Pipeline.Bus, c.Pipeline.Setup = end, s.burst, s.bus, s.setup
	}
}

// moved sends count messages of size bytes at once, and returns the records of each engine
// and their sizes by frame.
func moved(w *world, v, p *vi, count, size int) (by [descriptors.DMAEngineCount][]string) {
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
				{"netTx, idle", sizes(alone[descriptors.EngineNetTx], 0), tt.idle},
				{"netTx, loaded", sizes(many[descriptors.EngineNetTx], middle), tt.loaded},
				{"hostRcv, idle", sizes(alone[descriptors.EngineHostRcv], 0), tt.placed},
				{"hostRcv, loaded", sizes(many[descriptors.EngineHostRcv], middle), tt.underway},
				{"hostTx", sizes(many[descriptors.EngineHostTx], middle), whole},
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
	if got := sizes(alone[descriptors.EngineHostRcv], 0); len(got) < len(doubling) {
		t.Errorf("hostRcv moves %s of a frame that is alone", got)
	}
	if got := sizes(many[descriptors.EngineHostRcv], 14); got != whole {
		t.Errorf("hostRcv moves %s under load, want %s", got, whole)
	}
	if got := sizes(many[descriptors.EngineNetTx], 14); got != whole {
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
		if v.Flags&descriptors.ProgressActive == 0 {
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
	both := map[string][2][descriptors.DMAEngineCount][]string{}
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
		both[name] = [2][descriptors.DMAEngineCount][]string{moved(w, v, p, 1, 8192), moved(w, v, p, 12, 8192)}
		if d := w.a.e.DMA(); d.Timeouts+d.Refused != 0 {
			t.Errorf("%s: %+v", name, d)
		}
	}
	for _, other := range []string{"host", "program"} {
		for load, name := range []string{"idle", "loaded"} {
			got, want := both[other][load][descriptors.EngineNetTx], both["nic"][load][descriptors.EngineNetTx]
			if !slices.Equal(got, want) {
				t.Errorf("%s, at the %s: %q, in the NIC %q", name, other, got, want)
			}
		}
	}
}
