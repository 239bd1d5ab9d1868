package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// ringEcho is one end of a ping-pong of ring messages with one payload, or none. A message
// without a tag goes to the frame of its slot, one with to an entry of the payload table.
type ringEcho struct {
	*ring
	arrives    uint32 // receives that have been taken
	tag, bytes uint32
	out        datasheet.DataSegment
}

func newRingEcho(r *ring, size int, tag uint32) *ringEcho {
	e := &ringEcho{ring: r, tag: tag, bytes: uint32(size)}
	_, e.out = r.frame(max(size, 1))
	if tag != 0 {
		r.place(tag, max(size, 1))
	}
	for range ringSlots {
		var attached *datasheet.DataSegment
		if tag == 0 && size > 0 {
			_, d := r.frame(size)
			attached = &d
		}
		fill(r.nextRecv(), nil, attached, 0)
		r.postRecv()
	}
	return e
}

func (e *ringEcho) send() {
	s := e.nextSend()
	s.Length, s.Segments, s.Payload = e.bytes, 0, e.out
	if e.bytes > 0 {
		s.Segments = 1
	}
	if s.Control = 0; e.tag != 0 {
		s.Control, s.Tag = datasheet.ControlImmediate, e.tag
	}
	s.StoreStatus(0)
	e.postSend()
}

func (e *ringEcho) received() bool {
	s := &e.recv[e.arrives%ringSlots]
	if !s.LoadStatus().Done() {
		return false
	}
	s.StoreStatus(0)
	e.arrives++
	e.postRecv()
	return true
}

// newRingEchoes are two ends of a ping-pong over a wire in memory.
func newRingEchoes(t testing.TB, level datasheet.Reliability, size int, tag uint32) (w *world, x, y *ringEcho) {
	w, a, b := ringPair(t, func(b *datasheet.CreateEndpointBody) { b.Reliability = level }, onMemory(t, max(size+ringMessage, 8192)))
	return w, newRingEcho(a, size, tag), newRingEcho(b, size, tag)
}

func TestNothingIsAllocatedForRings(t *testing.T) {
	levels(t, func(t *testing.T, level datasheet.Reliability, _ func(*datasheet.CreateEndpointBody)) {
		for _, size := range []int{0, 5000} {
			for _, tag := range []uint32{0, 0x155} {
				w, x, y := newRingEchoes(t, level, size, tag)
				one := func() {
					x.send()
					for !y.received() {
						w.a.e.Step()
						w.b.e.Step()
					}
					for s := &x.ring.send[(x.sent-1)%ringSlots]; !s.LoadStatus().Done(); {
						w.a.e.Step()
						w.b.e.Step()
					}
				}
				for range 2 * ringSlots {
					one()
				}
				if n := testing.AllocsPerRun(100, one); n != 0 {
					t.Errorf("%d bytes of payload, tag %#x: %v allocations a message", size, tag, n)
				}
			}
		}
	})
}

// BenchmarkRingEcho is BenchmarkEcho, inline, of ring messages.
func BenchmarkRingEcho(b *testing.B) {
	for _, level := range []datasheet.Reliability{datasheet.Unreliable, datasheet.ReliableDelivery} {
		for _, size := range []int{0, 8 << 10} {
			for _, tag := range []uint32{0, 0x155} {
				if size == 0 && tag != 0 {
					continue
				}
				b.Run(fmt.Sprintf("%d/%d/tag%x", level, size, tag), func(b *testing.B) {
					w, x, y := newRingEchoes(b, level, size, tag)
					w.settle()
					best := time.Duration(1 << 62)
					for b.Loop() {
						start := time.Now()
						x.send()
						for !x.received() {
							w.a.e.Step()
							w.b.e.Step()
							if y.received() {
								y.send()
							}
						}
						best = min(best, time.Since(start))
					}
					b.ReportMetric(float64(best)/2, "min-ns/one-way")
					b.ReportMetric(float64(b.Elapsed())/float64(2*b.N), "ns/one-way")
				})
			}
		}
	}
}
