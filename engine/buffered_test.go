package engine_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// transferred are the transfers of the payloads of one direction, by frame and engine.
type transferred map[uint32]*[datasheet.DMAEngineCount][]datasheet.DMARecord

func (l *logRing) transfers(by transferred) {
	for r, ok := l.next(); ok; r, ok = l.next() {
		if r.Flags&datasheet.DMARecordControl != 0 {
			continue
		}
		if by[r.Packet] == nil {
			by[r.Packet] = new([datasheet.DMAEngineCount][]datasheet.DMARecord)
		}
		by[r.Packet][r.Engine] = append(by[r.Packet][r.Engine], r)
	}
}

// carry sends messages of the sizes from v to p at once, checks what comes, and returns the transfers.
func carry(w *world, v, p *vi, sizes []int) transferred {
	w.t.Helper()
	a, b := v.n.newLog(12), p.n.newLog(12)
	m := newBatch(v, p, sizes...)
	credit := w.now + 2*time.Millisecond // for the acknowledgement that gives it
	w.run("credit", func() bool { return w.now > credit })
	m.post()
	w.run("the messages", func() bool { return m.done() && v.n.e.Quiet() })
	m.mustArrive()
	by := transferred{}
	a.transfers(by)
	b.transfers(by)
	return by
}

// cuts are the bytes of the transfers of each frame by an engine.
func (by transferred) cuts(e datasheet.DMAEngine) (all []string) {
	for k := range uint32(len(by)) {
		var sizes []string
		for _, r := range by[k][e] {
			sizes = append(sizes, fmt.Sprint(r.Bytes))
		}
		all = append(all, strings.Join(sizes, " "))
	}
	return all
}

// overlaps counts the successive frames of which, at the sender, hostTx begins with the later before the earlier has
// left, and at the receiver netRcv begins with the later before the earlier is in host memory: the two edges of
// figure 5 of the patent.
func (by transferred) overlaps() (sender, receiver int) {
	for k := range uint32(len(by) - 1) {
		x, y := by[k], by[k+1]
		netTx, hostRcv := x[datasheet.EngineNetTx], x[datasheet.EngineHostRcv]
		if y[datasheet.EngineHostTx][0].Start < netTx[len(netTx)-1].End {
			sender++
		}
		if y[datasheet.EngineNetRcv][0].Start < hostRcv[len(hostRcv)-1].End {
			receiver++
		}
	}
	return sender, receiver
}

// check looks whether the transfers of each NIC can be those of one with so many buffers: each engine does one thing at a
// time, bytes do not leave before they have come, and no more frames are inside than there are buffers.
func (by transferred) check(t tester, buffers int) {
	for _, e := range [][2]datasheet.DMAEngine{{datasheet.EngineHostTx, datasheet.EngineNetTx}, {datasheet.EngineNetRcv, datasheet.EngineHostRcv}} {
		var busy [2]uint64 // until when
		var left []uint64  // when frames have left
		for k := range uint32(len(by)) {
			in, out := by[k][e[0]], by[k][e[1]]
			if len(in) != 1 || len(out) == 0 {
				t.Fatalf("frame %d comes in %d transfers and leaves in %d", k, len(in), len(out))
			}
			if in[0].Start < busy[0] {
				t.Fatalf("engine %d begins frame %d at %d and is busy until %d", e[0], k, in[0].Start, busy[0])
			}
			if int(k) >= buffers && in[0].Start < left[int(k)-buffers] {
				t.Fatalf("frame %d comes at %d into %d buffers, frame %d leaves at %d", k, in[0].Start, buffers, int(k)-buffers, left[int(k)-buffers])
			}
			busy[0] = in[0].End
			for _, r := range out {
				if r.Start < busy[1] || r.Start < in[0].Start {
					t.Fatalf("engine %d moves frame %d at %d: busy until %d, the frame began at %d", e[1], k, r.Start, busy[1], in[0].Start)
				}
				busy[1] = r.End
			}
			if last := out[len(out)-1]; last.End < in[0].End {
				t.Fatalf("frame %d has left at %d and came until %d", k, last.End, in[0].End)
			}
			left = append(left, busy[1])
			if b := in[0].Flags & datasheet.DMARecordBuffer >> 1; b != k%uint32(buffers) || b != out[0].Flags&datasheet.DMARecordBuffer>>1 {
				t.Fatalf("frame %d is in buffer %d of %d", k, b, buffers)
			}
		}
	}
}

type tester interface{ Fatalf(string, ...any) }

// TestBothEdges: under load successive frames overlap on both sides where the policy uses several buffers, and never where it
// uses one.
func TestBothEdges(t *testing.T) {
	slow := oneBus
	slow.bus = 110e6
	eager := pipeline.Eager{MinPulse: 128}
	for name, tt := range map[string]struct {
		policy  pipeline.Policy
		buffers int // of the NIC
		used    int
	}{
		"store and forward":                  {pipeline.StoreAndForward{}, 4, 4},
		"store and forward with one buffer":  {pipeline.StoreAndForward{}, 1, 1},
		"cut-through":                        {pipeline.Within{Policy: pipeline.Static{Pulse: 1280}, Buffers: 1}, 4, 1},
		"static":                             {pipeline.Static{Pulse: 1280}, 4, 4},
		"eager with two buffers":             {pipeline.Within{Policy: eager, Buffers: 2}, 4, 2},
		"amp":                                {eager, 4, 4},
		"amp with more buffers than frames":  {eager, 64, 64},
		"eager with two buffers of one":      {pipeline.Within{Policy: eager, Buffers: 2}, 1, 1},
		"store and forward with two buffers": {pipeline.Within{Policy: pipeline.StoreAndForward{}, Buffers: 2}, 4, 2},
	} {
		t.Run(name, func(t *testing.T) {
			w, v, p := pair(t, nil, memory(4<<20), shaped(slow), policies(tt.policy, tt.policy), func(c *engine.Config, _ *port) { c.Pipeline.Buffers = tt.buffers })
			by := carry(w, v, p, slices.Repeat([]int{8192}, 20))
			by.check(t, tt.used)
			if s, r := by.overlaps(); (s > 0) != (tt.used > 1) || (r > 0) != (tt.used > 1) {
				t.Errorf("%d pairs overlap at the sender and %d at the receiver", s, r)
			}
		})
	}
}

// TestRandomBuffers: whatever frames, speeds, policies and buffers, bytes arrive as they were sent, and the
// transfers are those of NICs with so many buffers.
func TestRandomBuffers(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 3))
		s := speeds{rate: rapid.Int64Range(20e6, 1e9).Draw(rt, "rate"), bus: rapid.Int64Range(20e6, 1e9).Draw(rt, "bus"),
			delay: time.Duration(rapid.IntRange(0, 5000).Draw(rt, "delay")), setup: time.Duration(rapid.IntRange(0, 2000).Draw(rt, "setup")),
			burst: rapid.IntRange(64, 4096).Draw(rt, "burst")}
		buffers := rapid.IntRange(1, 8).Draw(rt, "buffers")
		half := rapid.Bool().Draw(rt, "half duplex")
		policy := rapid.SampledFrom([]pipeline.Policy{pipeline.StoreAndForward{}, pipeline.Static{Pulse: 500}, pipeline.Eager{MinPulse: 128},
			pipeline.Within{Policy: pipeline.Eager{MinPulse: 700}, Buffers: 2}}).Draw(rt, "policy")
		w, v, p := pair(t, nil, memory(4<<20), shaped(s), policies(policy, policy), func(c *engine.Config, _ *port) {
			c.Pipeline.Buffers, c.Pipeline.HalfDuplex = buffers, half
		})
		var sizes []int
		for range rapid.IntRange(1, 15).Draw(rt, "messages") {
			sizes = append(sizes, 1+random.IntN(20_000))
		}
		carry(w, v, p, sizes).check(rt, pipeline.BuffersOf(policy, buffers))
		must.Be(rt, w.a.e.Counter(datasheet.CounterFramesDropped)+w.b.e.Counter(datasheet.CounterFramesDropped), 0, "frames were dropped")
	})
}

// TestShortRawFrames: raw frames that are shorter than a header of ours cross NICs with speeds, too.
func TestShortRawFrames(t *testing.T) {
	_, x, y := frames(t, datasheet.EndpointPromiscuous, memory(4<<20), shaped(oneBus))
	for i, size := range []int{14, 60, 63, 64, 65, 1500, 14, 14, 14, 14} { // more than there are buffers
		d, in := y.receiver(2048)
		frame := rawFrame([]byte{2, 0, 0, 0, 0, 2}, size, uint64(i))
		if st := sendFrame(x, frame); st.Failed() {
			t.Fatal(st)
		}
		x.n.w.run("a raw frame", func() bool { return d.Status().Done() })
		mustTake(t, d, in, append(frame, make([]byte, max(0, datasheet.MinFrame-size))...))
	}
}

// TestHalfDuplex: messages both ways cross buses that carry one transfer at a time. hostTx and hostRcv of a NIC never
// overlap, and take turns.
func TestHalfDuplex(t *testing.T) {
	for _, half := range []bool{false, true} {
		amp := pipeline.Eager{MinPulse: 128}
		w, v, p := pair(t, nil, memory(4<<20), shaped(oneBus), policies(amp, amp), func(c *engine.Config, _ *port) { c.Pipeline.HalfDuplex = half })
		const count, size = 12, 8192
		log := w.a.newLog(12)
		sizes := slices.Repeat([]int{size}, count)
		ways := []*batch{newBatch(v, p, sizes...), newBatch(p, v, sizes...)}
		w.settle()
		for _, m := range ways {
			m.post()
		}
		for _, m := range ways {
			m.mustArrive()
		}
		var bus []datasheet.DMARecord
		for r, ok := log.next(); ok; r, ok = log.next() {
			if r.Engine == datasheet.EngineHostTx || r.Engine == datasheet.EngineHostRcv {
				bus = append(bus, r)
			}
		}
		slices.SortFunc(bus, func(a, b datasheet.DMARecord) int { return cmp.Compare(a.Start, b.Start) })
		together, turns := 0, 0
		for i, r := range bus[1:] {
			if r.Start < bus[i].End {
				together++
			}
			if r.Engine != bus[i].Engine {
				turns++
			}
		}
		if (together == 0) != half || turns < count {
			t.Errorf("half duplex %v: of %d transfers %d overlap with the one before, %d of the other direction", half, len(bus), together, turns)
		}
	}
}

// TestEndsWithFullBuffers: a connection ends, a NIC is reset, or a peer dies while frames are in all buffers and netTx moves one.
// Descriptors come back, no buffer is written to afterwards, and the NICs go on.
func TestEndsWithFullBuffers(t *testing.T) {
	const size = 8192
	amp := pipeline.Eager{MinPulse: 128}
	levels(t, func(t *testing.T, level datasheet.Reliability, change func(*datasheet.CreateEndpointBody)) {
		for _, how := range []string{"disconnect", "reset", "death"} {
			for _, who := range []string{"sender", "receiver"} {
				w, v, p := pair(t, change, memory(4<<20), shaped(oneBus), policies(amp, amp), func(c *engine.Config, _ *port) {
					if c.MAC[5] == 2 {
						c.Pipeline.Bus = 40e6 // the receiver's buffers fill up
					}
				})
				m := newBatch(v, p, slices.Repeat([]int{size}, 16)...)
				w.settle()
				m.post()
				inside := func(n *node, d engine.Direction) int {
					s := n.e.DMAState().Movers[d]
					return int(s.Newest.Frame-s.Frame) + 1
				}
				w.run("full buffers", func() bool {
					s := w.a.e.DMAState().Movers[engine.Transmit]
					return inside(w.a, engine.Transmit) == engine.DefaultBuffers && inside(w.b, engine.Receive) == engine.DefaultBuffers && s.Sent < s.Length
				})
				x, y := v, p
				if who == "receiver" {
					x, y = p, v
				}
				switch how {
				case "disconnect":
					disconnect(x)
					w.run("the other's notice", func() bool { return y.state() == datasheet.StateError })
				case "reset":
					x.n.e.Reset()
					if s := x.n.e.DMAState().Movers; s[0].Active || s[1].Active || x.n.e.Moving() {
						t.Errorf("%s %s: %+v", who, how, s)
					}
				case "death":
					w.idle = time.Millisecond
					for end := w.now + 10*time.Second; y.state() != datasheet.StateError; w.now += 100 * time.Microsecond {
						if y.n.e.Step(); w.now > end {
							t.Fatalf("%s %s: the other does not notice", who, how)
						}
					}
					x.n.e.Reset()
				}
				disconnect(y)
				mine := m.sends
				if y == p {
					mine = m.receives
				}
				for i, d := range mine {
					must.Be(t, d.Status().Done(), true, "%s %s: descriptor %d of the other has not come back", who, how, i)
				}
				for _, in := range m.in {
					clear(in)
				}
				w.idle = 100 * time.Nanosecond
				w.mustServe(size)
				for i, in := range m.in {
					must.Same(t, in, make([]byte, size), "%s %s: buffer %d was written after its descriptor came back", who, how, i)
				}
			}
		}
	})
}

// TestBuffersNeedDeviceMemory: the frame buffers are device memory, and a NIC that has too little for them does not begin.
func TestBuffersNeedDeviceMemory(t *testing.T) {
	w := newWorld(t, shaped(oneBus), func(c *engine.Config, _ *port) { c.Pipeline.Buffers = 64 })
	should.Fail(t, w.a.e.MapSRAM(alignedBytes(1<<20), 4096), engine.ErrConfig, "64 buffers in a megabyte")
	must.OK(t, w.a.e.MapSRAM(alignedBytes(16<<20), 4096))
	free := w.a.e.FreeSRAM()
	if mtu := uint32(w.a.port.mtu); free > 16<<20-4096-2*64*mtu {
		t.Errorf("%d bytes are free beside the buffers", free)
	}
}
