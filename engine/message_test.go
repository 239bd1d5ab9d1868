package engine_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

func unreliable(b *datasheet.CreateEndpointBody) { b.Reliability = datasheet.Unreliable }

func levels(t *testing.T, f func(t *testing.T, level datasheet.Reliability, change func(*datasheet.CreateEndpointBody))) {
	for _, level := range []datasheet.Reliability{datasheet.Unreliable, datasheet.ReliableDelivery, datasheet.ReliableReception} {
		t.Run(level.String(), func(t *testing.T) {
			f(t, level, func(b *datasheet.CreateEndpointBody) { b.Reliability = level })
		})
	}
}

func TestMessageSizes(t *testing.T) {
	levels(t, func(t *testing.T, level datasheet.Reliability, change func(*datasheet.CreateEndpointBody)) {
		_, v, p := pair(t, change)
		payload := 2048 - datasheet.HeaderSize
		for _, size := range []int{0, 1, 63, 64, 65, payload - 1, payload, payload + 1, 64 * payload, 64*payload + 1, 1 << 20, datasheet.MaxTransfer} {
			if size > 2<<20 {
				v.n.brk, p.n.brk = 1<<20, 1<<20 // the others are done with
			}
			data := pattern(size, uint64(size))
			sent, received, got := message(v, p, data)
			if sent != datasheet.StatusDone || received != datasheet.StatusDone|datasheet.StatusOpReceive {
				t.Fatalf("%d bytes: sent %v, received %v", size, sent, received)
			}
			mustEqual(t, got, data)
			sent, received, got = message(p, v, data)
			if sent.Failed() || received.Failed() {
				t.Fatalf("%d bytes back: sent %v, received %v", size, sent, received)
			}
			mustEqual(t, got, data)
			v.n.brk, p.n.brk = 1<<20, 1<<20
		}
	})
}

func TestImmediateData(t *testing.T) {
	levels(t, func(t *testing.T, level datasheet.Reliability, change func(*datasheet.CreateEndpointBody)) {
		w, v, p := pair(t, change)
		for _, size := range []int{0, 10, 5000} {
			s, out := v.descriptor(size)
			r, in := p.descriptor(size)
			copy(out[0], pattern(size, 1))
			s.SetImmediate(0xcafe0000 + uint32(size))
			p.postRecv(r)
			v.postSend(s)
			w.run("a message", func() bool { return r.Status().Done() && s.Status().Done() })
			if imm, ok := r.Immediate(); !ok || imm != 0xcafe0000+uint32(size) {
				t.Fatalf("%d bytes: immediate data %#x, %v", size, imm, ok)
			}
			mustEqual(t, in[0], pattern(size, 1))
		}
		_, received, _ := message(v, p, []byte("no immediate data"))
		if received&datasheet.StatusImmediate != 0 {
			t.Fatalf("immediate data out of nothing: %v", received)
		}
	})
}

// TestInlineData: messages may stand in their descriptors, of any size that fits,
// on good wires and bad ones.
func TestInlineData(t *testing.T) {
	levels(t, func(t *testing.T, _ datasheet.Reliability, change func(*datasheet.CreateEndpointBody)) {
		w, v, p := pair(t, change)
		for _, n := range []int{0, 1, 15, 16, 17, 32, 64, 100, 1000, datasheet.MaxSegments * datasheet.DataSegmentSize} {
			mem, address, _ := v.n.alloc(descriptors.DescriptorBytes(datasheet.MaxSegments))
			d, err := descriptors.NewDescriptor(mem, address, v.handle)
			if err != nil {
				t.Fatal(err)
			}
			data := pattern(n, uint64(n))
			copy(d.Inline(), data)
			if err := d.SetInline(n); err != nil {
				t.Fatal(err)
			}
			for range 2 { // the second time rearmed
				r, in := p.descriptor(5000)
				p.postRecv(r)
				v.postSend(d)
				w.run("the end of a message", func() bool { return d.Status().Done() && r.Status().Done() })
				if d.Status().Failed() || r.Status().Failed() {
					t.Fatalf("%d bytes: sent %v, received %v", n, d.Status(), r.Status())
				}
				mustEqual(t, in[0][:r.Length()], data)
				d.Rearm()
			}
		}
	})
}

func TestScatterGather(t *testing.T) {
	levels(t, func(t *testing.T, level datasheet.Reliability, change func(*datasheet.CreateEndpointBody)) {
		w, v, p := pair(t, change)
		random := rand.New(rand.NewPCG(7, 7))
		split := func(total, parts int) (sizes []int) {
			for i := range parts - 1 {
				n := random.IntN(2*total/(parts-i) + 1)
				n = min(n, total)
				sizes, total = append(sizes, n), total-n
			}
			return append(sizes, total)
		}
		for round := range 40 {
			total := random.IntN(20_000)
			sends, receives := split(total, 1+random.IntN(datasheet.MaxSegments)), split(total, 1+random.IntN(datasheet.MaxSegments))
			s, out := v.descriptor(sends...)
			r, in := p.descriptor(receives...)
			data := pattern(total, uint64(round))
			rest := data
			for _, b := range out {
				rest = rest[copy(b, rest):]
			}
			p.postRecv(r)
			v.postSend(s)
			w.run("a message", func() bool { return r.Status().Done() && s.Status().Done() })
			if r.Status().Failed() || s.Status().Failed() || int(r.Length()) != total {
				t.Fatalf("round %d: sent %v, received %v, %d of %d bytes", round, s.Status(), r.Status(), r.Length(), total)
			}
			var got []byte
			for _, b := range in {
				got = append(got, b...)
			}
			mustEqual(t, got, data)
			v.n.brk, p.n.brk = 1<<20, 1<<20
		}
	})
}

// TestMemoryInPieces has host memory that is not contiguous for the device, as
// behind vfio-user with many small mappings.
func TestMemoryInPieces(t *testing.T) {
	w := newWorld(t)
	for _, n := range []*node{w.a, w.b} {
		n.pieces = 4096
	}
	v, p := w.a.newVI(w.a.memory(0, 0), nil), w.b.newVI(w.b.memory(0, 0), nil)
	connect(v, p)
	data := pattern(100_000, 3)
	sent, received, got := message(v, p, data)
	if sent.Failed() || received.Failed() {
		t.Fatalf("sent %v, received %v", sent, received)
	}
	mustEqual(t, got, data)
}

func TestManyMessagesInOrder(t *testing.T) {
	levels(t, func(t *testing.T, level datasheet.Reliability, change func(*datasheet.CreateEndpointBody)) {
		w, v, p := pair(t, change)
		const depth = 1 << queueLog2
		type slot struct {
			s, r *descriptors.Descriptor
			out  []byte
			in   []byte
		}
		var slots [depth]slot
		for i := range slots {
			s, out := v.descriptor(3000)
			r, in := p.descriptor(3000)
			slots[i] = slot{s, r, out[0], in[0]}
		}
		for round := range 20 {
			for i := range slots {
				x := &slots[i]
				copy(x.out, pattern(3000, uint64(round*depth+i)))
				x.s.Rearm()
				x.r.Rearm()
				p.postRecv(x.r)
				v.postSend(x.s)
			}
			for i := range slots {
				x := &slots[i]
				w.run("a message", func() bool { return x.r.Status().Done() && x.s.Status().Done() })
				if x.r.Status().Failed() || x.s.Status().Failed() {
					t.Fatalf("message %d: %v, %v", round*depth+i, x.s.Status(), x.r.Status())
				}
				mustEqual(t, x.in, pattern(3000, uint64(round*depth+i)))
			}
		}
	})
}

func TestSlowReceiverStallsTheSender(t *testing.T) {
	w, v, p := pair(t, nil)
	const messages = 10
	var sends, receives []*descriptors.Descriptor
	var in [][]byte
	for i := range messages {
		s, out := v.descriptor(5000)
		copy(out[0], pattern(5000, uint64(i)))
		sends = append(sends, s)
		r, b := p.descriptor(5000)
		receives, in = append(receives, r), append(in, b[0])
	}
	v.postSend(sends...)
	w.settle()
	before := w.a.e.Counter(datasheet.CounterFramesSent)
	for i := range messages {
		if sends[i].Status().Done() {
			t.Fatalf("message %d was sent to nobody", i)
		}
	}
	for i, r := range receives {
		p.postRecv(r)
		w.run("a message", func() bool { return r.Status().Done() && sends[i].Status().Done() })
		mustEqual(t, in[i], pattern(5000, uint64(i)))
		if i+1 < messages && sends[i+1].Status().Done() {
			t.Fatalf("message %d overtook its receive", i+1)
		}
	}
	if n := w.b.e.Counter(datasheet.CounterReceiveQueueEmpty); n != 0 {
		t.Fatalf("%d messages were dropped", n)
	}
	if sent := w.a.e.Counter(datasheet.CounterFramesSent) - before; sent > 10*messages {
		t.Fatalf("%d frames for %d messages of 3 frames", sent, messages)
	}
}

// lossy spoils frames with the given probabilities.
func lossy(seed uint64, loss, duplicate, reorder, corrupt float64) option {
	return func(c *engine.Config, p *port) {
		p.checksum = true
		r := rand.New(rand.NewPCG(seed, uint64(c.MAC[5])))
		var held [][]byte
		p.spoil = func(f []byte) (out [][]byte) {
			switch x := r.Float64(); {
			case x < loss:
			case x < loss+duplicate:
				out = append(out, f, append(alignedBytes(0), f...))
			case x < loss+duplicate+reorder:
				held = append(held, f)
				return nil
			case x < loss+duplicate+reorder+corrupt:
				f[r.IntN(len(f))] ^= 1 << r.IntN(8)
				out = append(out, f)
			default:
				out = append(out, f)
			}
			if len(held) > 0 && r.Float64() < 0.3 {
				out, held = append(out, held...), nil
			}
			return out
		}
	}
}

func TestReliableOverBadWires(t *testing.T) {
	for _, wire := range []struct {
		name                              string
		loss, duplicate, reorder, corrupt float64
	}{
		{"loss 20 %", 0.2, 0, 0, 0},
		{"loss 50 %", 0.5, 0, 0, 0},
		{"duplicates", 0, 0.3, 0, 0},
		{"reordering", 0, 0, 0.3, 0},
		{"corruption", 0, 0, 0, 0.2},
		{"all of it", 0.1, 0.1, 0.2, 0.1},
	} {
		for seed := range uint64(5) {
			t.Run(fmt.Sprintf("%s/%d", wire.name, seed), func(t *testing.T) {
				_, v, p := pair(t, nil, lossy(seed, wire.loss, wire.duplicate, wire.reorder, wire.corrupt))
				for i, size := range []int{0, 100, 300_000, 1, 50_000} {
					data := pattern(size, uint64(i)+seed)
					sent, received, got := message(v, p, data)
					if sent.Failed() || received.Failed() {
						t.Fatalf("%d bytes: sent %v, received %v", size, sent, received)
					}
					mustEqual(t, got, data)
				}
			})
		}
	}
}

// TestUnreliableOverBadWires checks that what arrives is whole and was sent, at
// most once.
func TestUnreliableOverBadWires(t *testing.T) {
	w, v, p := pair(t, unreliable, lossy(3, 0.1, 0.1, 0.1, 0.1))
	const depth, messages, size = 1 << queueLog2, 500, 5000
	var receives []*descriptors.Descriptor
	var in [][]byte
	for range depth {
		r, b := p.descriptor(size)
		receives, in = append(receives, r), append(in, b[0])
		p.postRecv(r)
	}
	s, out := v.descriptor(size)
	seen, next := map[uint32]bool{}, 0
	for i := range messages {
		copy(out[0], pattern(size, uint64(i)))
		s.Rearm()
		s.SetImmediate(uint32(i))
		v.postSend(s)
		w.run("a send", func() bool { return s.Status().Done() })
		w.settle()
		for receives[next].Status().Done() {
			r := receives[next]
			if r.Status().Failed() {
				t.Fatalf("received %v", r.Status())
			}
			number, ok := r.Immediate()
			if !ok || seen[number] {
				t.Fatalf("message %d, immediate %v, came twice", number, ok)
			}
			seen[number] = true
			mustEqual(t, in[next], pattern(size, uint64(number)))
			r.Rearm()
			p.postRecv(r)
			next = (next + 1) % depth
		}
	}
	if len(seen) == 0 || len(seen) == messages {
		t.Fatalf("%d of %d messages arrived: the wire is not bad, or dead", len(seen), messages)
	}
}

// TestFullWire checks that a wire that takes one frame at a time only slows
// things down.
func TestFullWire(t *testing.T) {
	levels(t, func(t *testing.T, level datasheet.Reliability, change func(*datasheet.CreateEndpointBody)) {
		_, v, p := pair(t, change, func(c *engine.Config, p *port) { p.room = 1 })
		data := pattern(200_000, 9)
		sent, received, got := message(v, p, data)
		if sent.Failed() || received.Failed() {
			t.Fatalf("sent %v, received %v", sent, received)
		}
		mustEqual(t, got, data)
	})
}
