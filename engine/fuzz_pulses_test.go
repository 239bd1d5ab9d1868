package engine_test

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// FuzzPulses sends messages while a host does what a script says, in steps of 4
// bytes: what, and with what. Whatever it does, the bytes arrive once and in
// order, and pulses that make no sense do nothing but count.
func FuzzPulses(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 3, 0, 0, 1, 0, 100, 0, 8, 0, 0, 0, 1, 0, 0x5c, 7, 8, 0, 0, 0})
	f.Add([]byte{0, 3, 0, 0, 8, 0, 0, 0, 2, 0, 0xff, 0xff, 2, 9, 1, 0, 5, 200, 0, 0, 8, 0, 0, 0})
	f.Add([]byte{3, 0, 1, 0, 3, 1, 1, 2, 0, 1, 0, 0, 8, 0, 0, 0, 4, 5, 0, 0, 6, 0, 0, 0, 8, 0, 0, 0, 7, 0, 0, 0})
	f.Fuzz(func(t *testing.T, script []byte) {
		pace := 100
		w, v, p := pair(t, nil, smallMemory, bursts(300), inParts(func(p *parts) {
			p.pace = func(have, _ int) int { return have + pace }
		}))
		s, out := v.descriptor(5000)
		r, in := p.descriptor(5000)
		copy(out[0], pattern(5000, 1))
		host := w.a.newPump()
		const logSize = datasheet.DMARecordSize << 8
		_, _, logA := w.a.alloc(2 * logSize)
		_, _, logB := w.b.alloc(2 * logSize)
		p.postRecv(r)
		w.settle()
		v.postSend(s)
		refused := [2]uint32{}
		pulse := func(i int, d engine.Direction, frame uint8, n uint32) {
			if ![]*node{w.a, w.b}[i].e.Pulse(d, frame, n) {
				refused[i]++
			}
		}
		for ; len(script) >= 4 && !r.Status().Done(); script = script[4:] {
			arg, n := script[1], uint32(binary.LittleEndian.Uint16(script[2:]))
			node, d := w.a, engine.Transmit
			if arg&1 != 0 {
				node, d = w.b, engine.Receive
			}
			switch script[0] % 9 {
			case 0:
				w.a.e.SetPulses(engine.Transmit, arg&1 != 0)
				w.b.e.SetPulses(engine.Receive, arg&2 != 0)
			case 1: // for the frame in progress
				pulse(int(arg&1), d, uint8(node.e.DMAState().Movers[d].Frame), n)
			case 2:
				pulse(int(arg&1), d, arg, n<<8)
			case 3:
				_ = node.e.SetPolicy(d, []pipeline.Policy{pipeline.StoreAndForward{}, pipeline.Static{Pulse: int(n) + 1},
					pipeline.Eager{MinPulse: int(n) + 1}, pipeline.NewAuto(pipeline.EarlyBytes)}[arg/2%4])
			case 4:
				node.e.SetPulseDeadline(time.Duration(n) * time.Microsecond)
			case 5:
				pace = int(n)
			case 6:
				base := [2]uint64{logA, logB}[arg&1]
				if !node.e.StartLog(base+uint64(n)%logSize, arg/2%9) {
					node.e.StopLog()
				}
			case 7:
				w.now += time.Duration(n) * time.Microsecond
			default:
				w.a.e.Step()
				w.b.e.Step()
				host.progress(engine.Transmit)
			}
		}
		pace = 1000
		w.a.e.SetPulses(engine.Transmit, false)
		w.b.e.SetPulses(engine.Receive, false)
		w.run("the message", func() bool { return s.Status().Done() && r.Status().Done() })
		if s.Status().Failed() || r.Status().Failed() {
			t.Fatalf("%v, %v", s.Status(), r.Status())
		}
		mustEqual(t, in[0], out[0])
		for i, n := range []*node{w.a, w.b} {
			if got := n.e.DMAState().Refused; got != refused[i] {
				t.Fatalf("%d pulses refused, %d counted", refused[i], got)
			}
		}
	})
}
