package engine_test

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// smallMemory makes a world cheap enough to build for every input.
func smallMemory(c *engine.Config, p *port) {
	c.Memory.(*node).mem = alignedBytes(256 << 10)
	c.Limits = engine.DefaultLimits()
	c.Limits.Endpoints, c.Limits.CQs = 16, 16
}

// FuzzDescriptors posts whatever the fuzzer writes where a descriptor should
// be, as a send and as a receive.
func FuzzDescriptors(f *testing.F) {
	f.Add(make([]byte, 64), uint32(0), false)
	good := alignedBytes(64)
	*datasheet.ControlAt(good) = datasheet.ControlSegment{SegCount: 1, Length: 5}
	*datasheet.DataSegmentAt(good[32:]) = datasheet.DataSegment{Address: hostBase + 100, Handle: 1 << 20, Length: 5}
	f.Add(good, uint32(0), false)
	f.Add(good, uint32(0), true)
	f.Add(good[:40], uint32(32), true)
	f.Fuzz(func(t *testing.T, image []byte, skew uint32, receive bool) {
		w, v, p := pair(t, unreliable, smallMemory)
		mem, address, _ := v.n.alloc(8192)
		copy(mem, image)
		datasheet.ControlAt(mem).StoreStatus(0)
		token := datasheet.Token{Address: address + uint64(skew), Handle: v.handle}
		if receive {
			v.recv.tokens[0] = token
			v.recv.producer++
			w.a.e.Doorbell(datasheet.EndpointPage(v.id)+datasheet.DoorbellRecv, v.recv.producer)
			d, _ := p.descriptor(5)
			p.postSend(d)
		} else {
			v.send.tokens[0] = token
			v.send.producer++
			w.a.e.Doorbell(datasheet.EndpointPage(v.id)+datasheet.DoorbellSend, v.send.producer)
		}
		w.settle()
		q := v.query()
		if q.SendCompleted != v.send.producer || q.RecvCompleted != v.recv.producer {
			t.Fatalf("a descriptor is stuck: %+v", *q)
		}
		w.mustServe(5)
	})
}

// FuzzCommands has admin commands of any content carried out.
func FuzzCommands(f *testing.F) {
	for op := range uint16(datasheet.OpResizeCQ) + 2 {
		f.Add(op, []byte{1, 0, 0, 0, 1, 0, 0, 0, 1})
		f.Add(op, []byte{2, 0, 0, 0, 1, 0, 0, 0, 2}) // a ring
	}
	ring := alignedBytes(datasheet.AdminEntrySize)
	*datasheet.Body[datasheet.CreateEndpointBody](datasheet.CommandAt(ring)) = ringBody(nil)
	f.Add(uint16(datasheet.OpCreateEndpoint), ring[8:56])
	f.Fuzz(func(t *testing.T, op uint16, body []byte) {
		w := newRingWorld(t, smallMemory)
		v, p := w.a.newVI(w.a.memory(0, 0), nil), w.b.newVI(w.b.memory(0, 0), nil)
		connect(v, p)
		w.a.newRing(v.handle, nil)
		mem := alignedBytes(datasheet.AdminEntrySize)
		copy(mem[8:], body)
		c := datasheet.CommandAt(mem)
		c.Opcode, c.ID = datasheet.Opcode(op), 60_000
		// The reply may come later or, for a wait of weeks, not at all; the NIC
		// must live on either way.
		v.n.e.Execute(c)
		w.settle()
		w.mustServe(5)
	})
}

// FuzzRawFrames has any frame arrive at endpoints for raw ones, while a program
// answers anything about it.
func FuzzRawFrames(f *testing.F) {
	f.Add([]byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 1, 2, 3}, uint8(0), uint32(0), uint32(0))
	f.Add([]byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 1, 2, 3}, uint8(1), uint32(2), uint32(0))
	f.Add([]byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0}, uint8(2), uint32(2), uint32(1))
	f.Add([]byte{255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 1, 0x88, 0xb5, 1, 1}, uint8(3), engine.DefaultQueue, engine.DefaultQueue)
	f.Add(make([]byte, 300), uint8(7), uint32(1), uint32(255))
	f.Fuzz(func(t *testing.T, frame []byte, action uint8, to, entry uint32) {
		w, v, p := frames(t, datasheet.EndpointPromiscuous, smallMemory)
		q := w.b.newFrames(p.handle, 0)
		table := q.table(entry%datasheet.PayloadEntries, 64)
		w.b.use(&scripted{
			filter: func(_ engine.Direction, b []byte, number uint32) (engine.Action, uint32, bool) {
				if action&4 != 0 {
					b[len(b)-1] ^= 1
				}
				return engine.Action(action & 3), to, action&8 == 0
			},
			demux: func(b []byte, number uint32) (uint32, uint32, bool) { return to, entry, action&16 == 0 },
		}, engine.HookFilterReceive, engine.HookDemultiplex)
		var ds []*descriptors.Descriptor
		for _, r := range []*vi{p, q} {
			d, _ := r.receiver(128)
			ds = append(ds, d)
		}
		guard, _, _ := p.n.alloc(64)
		b := alignedBytes(len(frame))
		copy(b, frame)
		*w.b.port.in = append(*w.b.port.in, b)
		w.settle()
		done := 0
		for _, d := range ds {
			if d.Status().Done() {
				done++
			}
			if int(d.Length()) > 128 {
				t.Fatalf("%d bytes in a buffer of 128", d.Length())
			}
		}
		if done > 1 {
			t.Fatalf("one frame ended %d receives", done)
		}
		for i, b := range append(guard, table[min(len(frame), 64):]...) {
			must.Be(t, b, 0, "byte %d behind a buffer was written", i)
		}
		w.b.use(&scripted{})
		d, in := p.receiver(128)
		if !ds[0].Status().Done() {
			d, in = ds[0], nil
		}
		good := rawFrame(station(w.b), 100, 1)
		if sendFrame(v, good); !d.Status().Done() || d.Status().Failed() || in != nil && string(in[:d.Length()]) != string(good) {
			t.Fatalf("the next frame: %v", d.Status())
		}
	})
}

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
			must.Be(t, n.e.DMAState().Refused, refused[i], "pulses refused, counted")
		}
	})
}
