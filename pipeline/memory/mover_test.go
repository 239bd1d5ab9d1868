package memory_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/pipeline"
	"github.com/trapeze-nic/trapeze/pipeline/memory"
	"pgregory.net/rapid"
)

// stream is a source that hands out a byte string in fits and starts, and a sink
// that takes it and sometimes has no room.
type stream struct {
	t      *rapid.T
	frames [][]byte
	got    [][]byte
	random *rand.Rand
	ended  int
}

func (s *stream) Fetch(frame uint64, offset int, p []byte) int {
	n := s.random.IntN(len(p) + 1)
	return copy(p[:n], s.frames[frame][offset:])
}

func (s *stream) Deliver(frame uint64, offset int, p []byte, last bool) bool {
	if s.random.IntN(4) == 0 {
		return false
	}
	if int(frame) != s.ended || offset != len(s.got[frame]) {
		s.t.Fatalf("frame %d offset %d delivered while frame %d has %d bytes", frame, offset, s.ended, len(s.got[s.ended]))
	}
	s.got[frame] = append(s.got[frame], p...)
	if last != (len(s.got[frame]) == len(s.frames[frame])) {
		s.t.Fatalf("last = %v at byte %d of %d", last, len(s.got[frame]), len(s.frames[frame]))
	}
	if last {
		s.ended++
	}
	return true
}

// TestBytesMoveOnceAndInOrder: whatever the policy, the frames and the behaviour of
// source and sink, what arrives is what was sent.
func TestBytesMoveOnceAndInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(pipeline.PolicyNames()).Draw(t, "policy")
		plan, err := pipeline.ByName(name, pipeline.Parameters{
			MinPulseSend:   rapid.IntRange(1, 700).Draw(t, "minpulse"),
			OptimalSend:    []pipeline.Step{{Wait: 3, Bytes: 7}},
			OptimalReceive: []pipeline.Step{{Wait: 64, Bytes: 64}},
		})
		if err != nil {
			t.Fatal(err)
		}
		s := &stream{t: t, random: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))}
		for range rapid.IntRange(1, 12).Draw(t, "frames") {
			b := make([]byte, rapid.IntRange(1, 3000).Draw(t, "length"))
			for i := range b {
				b[i] = byte(s.random.Uint32())
			}
			s.frames = append(s.frames, b)
		}
		s.got = make([][]byte, len(s.frames))
		now := int64(0)
		m, err := memory.New(memory.Config{Policy: plan.Send(), Buffers: rapid.IntRange(1, 4).Draw(t, "buffers"), Size: 3000,
			Burst: rapid.IntRange(1, 900).Draw(t, "burst"), Source: s, Sink: s, Clock: func() int64 { now += 1000; return now }})
		if err != nil {
			t.Fatal(err)
		}
		next := 0
		for steps := 0; next < len(s.frames) || !m.Idle(); steps++ {
			if steps > 10_000_000 {
				t.Fatalf("policy %s stands still at frame %d", name, s.ended)
			}
			if next < len(s.frames) && m.CanStart() {
				if err := m.Start(len(s.frames[next])); err != nil {
					t.Fatal(err)
				}
				next++
			}
			m.SetBacklog(len(s.frames) - next)
			m.Step()
		}
		for i := range s.frames {
			if !bytes.Equal(s.frames[i], s.got[i]) {
				t.Fatalf("frame %d differs", i)
			}
		}
	})
}

type endless struct{ transfers int }

func (e *endless) Fetch(_ uint64, _ int, p []byte) int { return len(p) }

func (e *endless) Deliver(uint64, int, []byte, bool) bool { e.transfers++; return true }

func newMover(t testing.TB, p pipeline.Policy, clock memory.Clock, e *endless, burst int) *memory.Mover {
	m, err := memory.New(memory.Config{Policy: p, Buffers: 4, Size: 8192, Burst: burst, Source: e, Sink: e, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestNothingIsAllocated(t *testing.T) {
	start := time.Now()
	for _, p := range []pipeline.Policy{pipeline.StoreAndForward{}, pipeline.Static{Pulse: 512}, pipeline.Eager{MinPulse: 128}, pipeline.NewAuto(pipeline.EarlyBytes)} {
		m := newMover(t, p, func() int64 { return int64(time.Since(start)) * 1000 }, &endless{}, 512)
		if n := testing.AllocsPerRun(200, func() {
			if m.CanStart() {
				if err := m.Start(8192); err != nil {
					t.Fatal(err)
				}
			}
			m.Step()
		}); n != 0 {
			t.Errorf("%T: %v allocations", p, n)
		}
	}
}

func TestBadConfigurations(t *testing.T) {
	e := &endless{}
	good := memory.Config{Policy: pipeline.StoreAndForward{}, Buffers: 2, Size: 64, Burst: 8, Source: e, Sink: e}
	for name, spoil := range map[string]func(*memory.Config){
		"no policy":    func(c *memory.Config) { c.Policy = nil },
		"no buffers":   func(c *memory.Config) { c.Buffers = 0 },
		"size 0":       func(c *memory.Config) { c.Size = 0 },
		"burst 0":      func(c *memory.Config) { c.Burst = 0 },
		"no source":    func(c *memory.Config) { c.Source = nil },
		"no sink":      func(c *memory.Config) { c.Sink = nil },
		"small memory": func(c *memory.Config) { c.Memory = make([]byte, 127) },
	} {
		c := good
		spoil(&c)
		if _, err := memory.New(c); !errors.Is(err, pipeline.ErrParameter) {
			t.Errorf("%s: %v", name, err)
		}
	}
	m, err := memory.New(good)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{-1, 0, 65} {
		if err := m.Start(n); !errors.Is(err, pipeline.ErrFrameLength) {
			t.Errorf("frame of %d bytes: %v", n, err)
		}
	}
	if err := m.Start(64); err != nil {
		t.Fatal(err)
	}
	if err := m.Start(64); !errors.Is(err, pipeline.ErrBusy) {
		t.Errorf("second frame while the first arrives: %v", err)
	}
}

// ticks is a clock that goes on by 10 ns at each look, so that the cost of a real
// clock is left out.
func ticks() memory.Clock {
	now := int64(0)
	return func() int64 { now += 10_000; return now }
}

// BenchmarkDecision is the cost of one decision: source and sink do nothing, and an
// operation is a step, with one fetch and one question to the policy. The policy
// says yes in the share of steps that transfers/op states.
func BenchmarkDecision(b *testing.B) {
	for _, c := range []struct {
		name   string
		policy pipeline.Policy
		clock  memory.Clock
	}{
		{"static", pipeline.Static{Pulse: 512}, nil},
		{"eager", pipeline.Eager{MinPulse: 512}, nil},
		{"auto", pipeline.NewAuto(pipeline.FewTransfers), nil},
		{"auto-learning", pipeline.NewAuto(pipeline.FewTransfers), ticks()},
	} {
		b.Run(c.name, func(b *testing.B) {
			e := &endless{}
			m := newMover(b, c.policy, c.clock, e, 512)
			b.ReportAllocs()
			for b.Loop() {
				if m.CanStart() {
					if err := m.Start(8192); err != nil {
						b.Fatal(err)
					}
				}
				m.Step()
			}
			b.ReportMetric(float64(e.transfers)/float64(b.N), "transfers/op")
		})
	}
}

// BenchmarkCopy is the memory mover with real copies: 8 KiB frames.
func BenchmarkCopy(b *testing.B) {
	e := &copier{from: make([]byte, 8192), to: make([]byte, 8192)}
	m, err := memory.New(memory.Config{Policy: pipeline.Eager{MinPulse: 128}, Buffers: 4, Size: 8192, Burst: 2048, Source: e, Sink: e})
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(8192)
	b.ReportAllocs()
	for b.Loop() {
		if err := m.Start(8192); err != nil {
			b.Fatal(err)
		}
		for !m.Idle() {
			m.Step()
		}
	}
}

type copier struct{ from, to []byte }

func (c *copier) Fetch(_ uint64, offset int, p []byte) int { return copy(p, c.from[offset:]) }

func (c *copier) Deliver(_ uint64, offset int, p []byte, _ bool) bool {
	copy(c.to[offset:], p)
	return true
}
