package engine_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// stream is messages of one size from one VI to another, with some of them
// under way at once.
type stream struct {
	t          testing.TB
	from, to   *vi
	size       int
	total      int
	sends      []*descriptors.Descriptor
	receives   []*descriptors.Descriptor
	in, out    [][]byte
	sent, came int
	posted     int
}

func newStream(t testing.TB, from, to *vi, size, total, depth int) *stream {
	s := &stream{t: t, from: from, to: to, size: size, total: total}
	for range min(depth, total) {
		d, out := from.descriptor(size)
		r, in := to.descriptor(size)
		s.sends, s.out = append(s.sends, d), append(s.out, out[0])
		s.receives, s.in = append(s.receives, r), append(s.in, in[0])
		to.postRecv(r)
	}
	return s
}

// step posts what can be posted, and checks what has come.
func (s *stream) step() (done bool) {
	s.t.Helper()
	depth := len(s.sends)
	for s.posted < s.total && s.posted < s.sent+depth {
		i := s.posted % depth
		copy(s.out[i], pattern(s.size, uint64(s.posted)))
		s.sends[i].Rearm()
		s.sends[i].SetImmediate(uint32(s.posted))
		s.from.postSend(s.sends[i])
		s.posted++
	}
	for s.sent < s.posted && s.sends[s.sent%depth].Status().Done() {
		if d := s.sends[s.sent%depth]; d.Status().Failed() {
			s.t.Fatalf("message %d: sent %v", s.sent, d.Status())
		}
		s.sent++
	}
	for s.came < s.posted && s.receives[s.came%depth].Status().Done() {
		r := s.receives[s.came%depth]
		if n, ok := r.Immediate(); r.Status().Failed() || !ok || n != uint32(s.came) || int(r.Length()) != s.size {
			s.t.Fatalf("message %d: received %v, %d bytes, number %d", s.came, r.Status(), r.Length(), n)
		}
		mustEqual(s.t, s.in[s.came%depth], pattern(s.size, uint64(s.came)))
		r.Rearm()
		s.to.postRecv(r)
		s.came++
	}
	return s.came == s.total && s.sent == s.total
}

// TestLossCostsLittleTime moves messages over wires that lose and reorder frames, in
// the world's time: nothing but waits takes any. Before is what it took while a sender
// learned only from a timer, which backed off, that a frame had been lost again. Outside the soak each wire
// has one level of reliability.
func TestLossCostsLittleTime(t *testing.T) {
	bad := faults{loss: 0.3, reorder: 0.3, late: 200 * time.Microsecond}
	worse := faults{loss: 0.4, duplicate: 0.2, reorder: 0.3, corrupt: 0.05, late: 200 * time.Microsecond}
	for i, c := range []struct {
		name                string
		to, back            faults
		size, number, depth int
		before              time.Duration
	}{
		{"data lost, 1 KiB", bad, faults{}, 1 << 10, 1024, 32, 12810 * time.Millisecond},
		{"data lost, 64 KiB", bad, faults{}, 64 << 10, 32, 32, 8769 * time.Millisecond},
		{"data lost, 1 MiB", bad, faults{}, 1 << 20, 2, 2, 8668 * time.Millisecond},
		{"both lost, 1 KiB", bad, bad, 1 << 10, 1024, 32, 16400 * time.Millisecond},
		{"both lost, 16 KiB", bad, bad, 16 << 10, 128, 32, 11039 * time.Millisecond},
		{"both lost, 1 MiB", bad, bad, 1 << 20, 2, 2, 10233 * time.Millisecond},
		{"both lost in order", faults{loss: 0.3}, faults{loss: 0.3}, 64 << 10, 32, 32, 12670 * time.Millisecond},
		{"all of it", worse, worse, 64 << 10, 32, 32, 18479 * time.Millisecond},
	} {
		for j, level := range []datasheet.Reliability{datasheet.ReliableDelivery, datasheet.ReliableReception} {
			if !soak.Wanted() && (i+j)%2 > 0 {
				continue
			}
			t.Run(fmt.Sprint(c.name, " ", level), func(t *testing.T) {
				var all time.Duration
				for seed := range uint64(3) {
					w, v, p := slowPair(t, seed, c.to, c.back, level)
					s := newStream(t, v, p, c.size, c.number, c.depth)
					start := w.now
					w.run("the end of a stream", s.step)
					all += w.now - start
				}
				if all > c.before/10 {
					t.Errorf("%v for %d messages of %d bytes; it must be a tenth of %v", all, 3*c.number, c.size, c.before)
				}
			})
		}
	}
}

// TestFewFramesAreRepeated bounds what is sent again, in hundredths of what is sent.
func TestFewFramesAreRepeated(t *testing.T) {
	const late = 100 * time.Microsecond // less than a round trip
	for _, c := range []struct {
		name     string
		to, back faults
		percent  uint64
	}{
		{"no faults", faults{}, faults{}, 0},
		{"reordering", faults{reorder: 0.3, late: late}, faults{}, 3},
		{"acknowledgements lost", faults{}, faults{loss: 0.3}, 3},
		{"loss", faults{loss: 0.1}, faults{}, 13},
		{"loss both ways", faults{loss: 0.3}, faults{loss: 0.3}, 55},
		{"loss and reordering", faults{loss: 0.3, reorder: 0.3, late: late}, faults{loss: 0.3}, 60},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, v, p := slowPair(t, 1, c.to, c.back, datasheet.ReliableDelivery)
			s := newStream(t, v, p, 64<<10, 128, 16)
			w.run("the end of a stream", s.step)
			again := w.a.e.Counter(datasheet.CounterFramesRetransmitted)
			first := uint64(s.total) * 34 // frames of a message
			if again*100 > first*c.percent {
				t.Errorf("%d of %d frames were sent again, %d %% are allowed", again, first, c.percent)
			}
		})
	}
}

// TestStreamsOverAnyWire has messages of any size go both ways at once, over wires with
// any faults, also to a peer that does not count what it has had twice, as none did once.
func TestStreamsOverAnyWire(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		chance := func(name string, most float64) float64 { return rapid.Float64Range(0, most).Draw(rt, name) }
		draw := func(way string) faults {
			return faults{loss: chance(way+"loss", 0.4), duplicate: chance(way+"duplicate", 0.3), reorder: chance(way+"reorder", 0.5),
				corrupt: chance(way+"corrupt", 0.05), late: time.Duration(rapid.IntRange(1, 1_000_000).Draw(rt, way+"late"))}
		}
		level := rapid.SampledFrom([]datasheet.Reliability{datasheet.ReliableDelivery, datasheet.ReliableReception}).Draw(rt, "level")
		w, v, p := slowPair(t, rapid.Uint64().Draw(rt, "seed"), draw("to "), draw("back "), level)
		if rapid.Bool().Draw(rt, "old peer") {
			w.b.port.spoil = func(f []byte) [][]byte {
				if h := datasheet.HeaderAt(f); h.Type == datasheet.FrameAck {
					h.Message, h.Checksum = 0, 0
					h.Checksum = datasheet.FrameChecksumOf(f)
				}
				return [][]byte{f}
			}
		}
		var streams []*stream
		frames := uint64(0)
		for _, ends := range [][2]*vi{{v, p}, {p, v}} {
			size := rapid.SampledFrom([]int{0, 1, 1 << 10, 5000, 64 << 10, 1 << 20}).Draw(rt, "size")
			total := min(max(300_000/(size+1), 1), rapid.IntRange(0, 300).Draw(rt, "messages"))
			streams = append(streams, newStream(t, ends[0], ends[1], size, total, rapid.IntRange(1, 16).Draw(rt, "depth")))
			frames += uint64(total * (size/1984 + 1))
		}
		w.run("the end of both streams", func() bool {
			first, second := streams[0].step(), streams[1].step()
			return first && second
		})
		again := w.a.e.Counter(datasheet.CounterFramesRetransmitted) + w.b.e.Counter(datasheet.CounterFramesRetransmitted)
		if again > 4*frames+500 {
			t.Fatalf("%d frames were sent again, of %d", again, frames)
		}
	})
}

// TestOrderIsToldOnAFullWire: a data frame on which nothing can be told of frames that
// have arrived out of order does not take the place of the acknowledgement that can.
func TestOrderIsToldOnAFullWire(t *testing.T) {
	w, v, p := pair(t, nil)
	d, _ := p.descriptor(10_000)
	p.postRecv(d)
	d, _ = v.descriptor(10_000)
	v.postRecv(d)
	w.settle()
	first := true
	w.a.port.spoil = func(f []byte) (out [][]byte) {
		if !first {
			out = [][]byte{f}
		}
		first = false
		return out
	}
	d, _ = v.descriptor(4000)
	v.postSend(d)
	w.a.e.Step()
	w.b.port.room = 1
	d, _ = p.descriptor(10_000)
	p.postSend(d)
	for range 100 {
		w.b.e.Step()
		for _, f := range *w.b.port.out {
			if h := datasheet.HeaderAt(f); h.Type == datasheet.FrameAck && h.Extent != 0 {
				return
			}
		}
		*w.b.port.out = nil
	}
	t.Fatal("nobody says what has arrived out of order")
}
