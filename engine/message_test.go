package engine_test

import (
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

func TestScatterGather(t *testing.T) {
	levels(t, func(t *testing.T, level datasheet.Reliability, change func(*datasheet.CreateEndpointBody)) {
		w, v, p := pair(t, change, memory(2<<20))
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
