package memory_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/engine/internal/memory"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// owner moves frames through a mover as a NIC would, in fits and starts, and
// checks what it is told to do.
type owner struct {
	*rapid.T
	m      *memory.Mover
	random *rand.Rand
	now    int64
	logged map[uint32][2]int // bytes by frame: in, out

	hosted    bool // as asked for
	number    uint32
	length    int
	queued    int
	in, out   []byte // what arrives, what has left
	cancelled bool
}

func (o *owner) Transfer(outgoing bool, frame uint32, start, end int64, bytes, queued int) {
	if start > end || end > o.now || bytes < 1 || !outgoing && queued != o.queued || outgoing && queued != 0 {
		o.Fatalf("transfer of %d bytes from %d to %d at %d, %d behind", bytes, start, end, o.now, queued)
	}
	n := o.logged[frame]
	if outgoing {
		n[1] += bytes
	} else {
		n[0] += bytes
	}
	o.logged[frame] = n
}

// policyOf draws one of the policies.
func policyOf(t *rapid.T) pipeline.Policy {
	name := rapid.SampledFrom(pipeline.PolicyNames()).Draw(t, "policy")
	plan, err := pipeline.ByName(name, pipeline.Parameters{
		MinPulseSend:   rapid.IntRange(1, 700).Draw(t, "minpulse"),
		OptimalSend:    []pipeline.Step{{Wait: 3, Bytes: 7}},
		OptimalReceive: []pipeline.Step{{Wait: 64, Bytes: 64}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return plan.Send()
}

// frame takes one frame through the mover. In between it changes its mind about
// policy, pulses and log.
func (o *owner) frame() {
	o.length = 1 + o.random.IntN(3000)
	o.in, o.out, o.cancelled = make([]byte, o.length), nil, false
	for i := range o.in {
		o.in[i] = byte(o.random.Uint32())
	}
	hosted := o.hosted // the wish counts from the next frame on
	o.queued = o.random.IntN(3)
	if err := o.m.Start(o.length, o.queued); err != nil {
		o.Fatal(err)
	}
	arrived, allowed := 0, 0
	for steps := 0; len(o.out) < o.length && !o.cancelled; steps++ {
		if steps > 1_000_000 {
			o.Fatalf("stands still at %+v", o.m.State())
		}
		if s := o.m.State(); !s.Active || s.Frame != o.number || s.Length != o.length || s.Arrived != arrived || s.Sent != len(o.out) ||
			s.Held != (hosted && allowed == len(o.out) && arrived > allowed) || o.m.Hosted() != hosted {
			o.Fatalf("%+v in frame %d of %d bytes, %d arrived, %d allowed, %d left, hosted %v", s, o.number, o.length, arrived, allowed, len(o.out), hosted)
		}
		switch k := o.random.IntN(40); {
		case k < 12 && arrived < o.length:
			arrived += 1 + o.random.IntN(min(900, o.length-arrived))
			if err := o.m.Arrived(arrived); err != nil {
				o.Fatal(err)
			}
		case k < 20:
			hostile := o.random.IntN(2) == 0
			frame, n := uint8(o.number), 1+o.random.IntN(900)
			if hostile {
				frame, n = uint8(o.random.Uint32()), o.random.IntN(1<<24)-5
			}
			good := hosted && frame == uint8(o.number) && n >= 1 && n <= arrived-allowed
			if o.m.Pulse(frame, n) != good {
				o.Fatalf("pulse for %d bytes of frame %d: %v expected, %d arrived, %d allowed", n, frame, good, arrived, allowed)
			}
			if good {
				allowed += n
			}
		case k == 20:
			o.m.Release()
			hosted = false
		case k == 21 && o.random.IntN(4) == 0:
			o.m.Cancel()
			o.cancelled = true
		case k == 22:
			o.hosted = !o.hosted
			o.m.SetPulses(o.hosted)
			hosted = hosted && o.hosted
		case k == 23:
			if err := o.m.SetPolicy(policyOf(o.T)); err != nil {
				o.Fatal(err)
			}
		case k == 24:
			if err := o.m.Start(1, 0); err == nil {
				o.Fatal("two frames at once")
			}
		case k == 25:
			if err := o.m.Arrived(arrived - 1); !errors.Is(err, pipeline.ErrProgress) {
				o.Fatalf("a counter that goes backwards: %v", err)
			}
		default:
			o.deliver(hosted, allowed, arrived)
		}
	}
	if s := o.m.State(); s.Active || s.Held || s.Frame != o.number || s.Sent != len(o.out) {
		o.Fatalf("%+v after frame %d, of which %d bytes left", s, o.number, len(o.out))
	}
	if !o.cancelled && !bytes.Equal(o.in, o.out) {
		o.Fatalf("frame %d differs", o.number)
	}
	if n, ok := o.logged[o.number]; ok && !o.cancelled && n != [2]int{o.length, o.length} {
		o.Fatalf("frame %d of %d bytes has %v in the log", o.number, o.length, n)
	}
	o.number++
}

// deliver does what the mover says may be done.
func (o *owner) deliver(hosted bool, allowed, arrived int) {
	n, last := o.m.Next()
	if n == 0 {
		if !hosted && arrived == o.length {
			o.Fatalf("frame has arrived, and nothing moves: %+v", o.m.State())
		}
		return
	}
	end := len(o.out) + n
	if n < 1 || end > arrived || hosted && end > allowed || last != (end == o.length) {
		o.Fatalf("%d bytes after %d, %d have arrived, %d allowed", n, len(o.out), arrived, allowed)
	}
	if again, _ := o.m.Next(); again != 0 {
		o.Fatal("two transfers at once")
	}
	o.out = append(o.out, o.in[len(o.out):end]...)
	if err := o.m.Done(); err != nil {
		o.Fatal(err)
	}
}

// TestBytesMoveOnceAndInOrder: whatever the policies, the frames, the host's
// pulses and the pace at which bytes come, what leaves is what arrived.
func TestBytesMoveOnceAndInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := &owner{T: t, random: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1)), logged: map[uint32][2]int{}}
		m, err := memory.New(memory.Config{Policy: policyOf(t), Clock: func() int64 { o.now += 1000; return o.now }})
		if err != nil {
			t.Fatal(err)
		}
		o.m = m
		o.hosted = rapid.Bool().Draw(t, "hosted")
		m.SetPulses(o.hosted)
		if rapid.Bool().Draw(t, "log") {
			m.SetLog(o)
		}
		for range rapid.IntRange(1, 12).Draw(t, "frames") {
			o.frame()
		}
	})
}

// observer is a policy that counts what it is told.
type observer struct {
	pipeline.Eager
	moved, arrived, left, queued int
	elapsed                      int64
}

func (o *observer) Observe(b pipeline.Observation) {
	o.moved += b.Bytes
	o.elapsed += b.Elapsed
	o.left, o.queued = b.Left, b.Queued
}

func (o *observer) ObserveArrival(bytes int, elapsed int64) {
	o.arrived += bytes
	o.elapsed += elapsed
}

func TestPoliciesThatLearn(t *testing.T) {
	now, reads := int64(0), 0
	clock := func() int64 { now += 10; reads++; return now }
	p := &observer{Eager: pipeline.Eager{MinPulse: 10}}
	m, err := memory.New(memory.Config{Policy: p, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	steps := func(expect ...int) {
		t.Helper()
		for _, n := range expect {
			if got, _ := m.Next(); got != n || m.Done() != nil {
				t.Fatalf("%d bytes, expected %d", got, n)
			}
		}
	}
	if err := m.Start(30, 7); err != nil {
		t.Fatal(err)
	}
	if err := m.Arrived(20); err != nil {
		t.Fatal(err)
	}
	steps(20)
	if p.moved != 20 || p.left != 10 || p.queued != 7 || p.arrived != 0 {
		t.Fatalf("told %+v", p)
	}
	if err := m.Arrived(30); err != nil {
		t.Fatal(err)
	}
	steps(10)
	// Start at 10, decision and end at 20 and 30, arrival at 40, 50 and 60.
	if p.moved != 30 || p.left != 0 || p.arrived != 30 || p.elapsed != 10+30+10 {
		t.Fatalf("told %+v", p)
	}
	// Nobody reads the clock for a policy that does not learn.
	if err := m.SetPolicy(pipeline.StoreAndForward{}); err != nil {
		t.Fatal(err)
	}
	reads = 0
	if err := errors.Join(m.Start(5, 0), m.Arrived(5)); err != nil {
		t.Fatal(err)
	}
	steps(5)
	if reads != 0 || p.moved != 30 {
		t.Fatalf("%d looks at the clock, told %+v", reads, p)
	}
}

// TestWholeFrames: a frame that is all there takes one decision where it can, and
// counts as any other.
func TestWholeFrames(t *testing.T) {
	now := int64(0)
	clock := func() int64 { now++; return now }
	for name, tt := range map[string]struct {
		policy pipeline.Policy
		change func(m *memory.Mover)
		whole  bool
	}{
		"all of it":            {pipeline.StoreAndForward{}, nil, true},
		"a policy that waits":  {waits{}, nil, true},
		"pieces":               {pipeline.Static{Pulse: 10}, nil, false},
		"a pulse of its size":  {pipeline.Static{Pulse: 100}, nil, true},
		"learning":             {pipeline.NewAuto(pipeline.EarlyBytes), nil, false},
		"log":                  {pipeline.StoreAndForward{}, func(m *memory.Mover) { m.SetLog(discardLog{}) }, false},
		"pulses":               {pipeline.StoreAndForward{}, func(m *memory.Mover) { m.SetPulses(true) }, false},
		"a policy that is new": {pipeline.StoreAndForward{}, func(m *memory.Mover) { _ = m.SetPolicy(pipeline.Eager{MinPulse: 1}) }, false},
	} {
		m := newMover(t, tt.policy, clock)
		if tt.change != nil {
			tt.change(m)
		}
		if m.Plain() != (tt.whole || name == "pieces") {
			t.Errorf("%s: plain %v", name, m.Plain())
		}
		for frame := range uint32(3) {
			before := m.State()
			if got := m.Whole(100, 0); got != (tt.whole || name == "a policy that is new" && frame > 0) {
				t.Errorf("%s: frame %d goes at once: %v", name, frame, got)
			} else if got {
				if s := m.State(); s != (memory.State{Frame: frame, Length: 100, Arrived: 100, Sent: 100}) || m.Started() != frame+1 {
					t.Errorf("%s: %+v after frame %d", name, s, frame)
				}
				continue
			}
			if s := m.State(); s != before {
				t.Errorf("%s: %+v was %+v", name, s, before)
			}
			if err := errors.Join(m.Start(100, 0), m.Arrived(100)); err != nil {
				t.Fatal(err)
			}
			m.Release()
			for n, last := m.Next(); n > 0; n, last = m.Next() {
				if m.Done() != nil || last {
					break
				}
			}
		}
	}
}

type waits struct{}

func (waits) Next(pipeline.View) int { return 0 }

func TestBadUse(t *testing.T) {
	if _, err := memory.New(memory.Config{}); !errors.Is(err, pipeline.ErrParameter) {
		t.Errorf("no policy: %v", err)
	}
	m := newMover(t, pipeline.StoreAndForward{}, nil)
	if err := m.SetPolicy(nil); !errors.Is(err, pipeline.ErrParameter) || m.Policy() != (pipeline.StoreAndForward{}) {
		t.Errorf("no policy: %v, now %v", err, m.Policy())
	}
	for _, n := range []int{-1, 0, pipeline.MaxFrame + 1} {
		if err := m.Start(n, 0); !errors.Is(err, pipeline.ErrFrameLength) {
			t.Errorf("frame of %d bytes: %v", n, err)
		}
	}
	if m.Pulse(0, 1) || m.Arrived(1) == nil || m.Done() == nil {
		t.Error("something moved before the first frame")
	}
	if s := m.State(); s != (memory.State{}) {
		t.Errorf("%+v before the first frame", s)
	}
	m.Cancel()
	m.SetLog(never{t}) // there is no clock
	if err := errors.Join(m.Start(9, 0), m.Arrived(9)); err != nil {
		t.Fatal(err)
	}
	if n, last := m.Next(); n != 9 || !last || m.Done() != nil {
		t.Fatalf("%d bytes, last %v", n, last)
	}
}

type never struct{ *testing.T }

func (n never) Transfer(bool, uint32, int64, int64, int, int) { n.Error("told without a clock") }

func newMover(t testing.TB, p pipeline.Policy, clock memory.Clock) *memory.Mover {
	t.Helper()
	m, err := memory.New(memory.Config{Policy: p, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// move takes a frame of 8 KiB through m, in bursts, and returns the transfers.
func move(t testing.TB, m *memory.Mover, burst int) (transfers int) {
	const length = 8192
	if err := m.Start(length, 0); err != nil {
		t.Fatal(err)
	}
	for arrived := 0; arrived < length; {
		arrived = min(arrived+burst, length)
		if err := m.Arrived(arrived); err != nil {
			t.Fatal(err)
		}
		if m.Held() {
			m.Pulse(uint8(m.State().Frame), burst)
		}
		for n, _ := m.Next(); n > 0; n, _ = m.Next() {
			transfers++
			if err := m.Done(); err != nil {
				t.Fatal(err)
			}
		}
	}
	return transfers
}

var timed = func() memory.Clock {
	start := time.Now()
	return func() int64 { return int64(time.Since(start)) * 1000 }
}

// discardLog is a log that keeps nothing.
type discardLog struct{}

func (discardLog) Transfer(bool, uint32, int64, int64, int, int) {}

func TestNothingIsAllocated(t *testing.T) {
	for _, p := range []pipeline.Policy{pipeline.StoreAndForward{}, pipeline.Static{Pulse: 512}, pipeline.Eager{MinPulse: 128}, pipeline.NewAuto(pipeline.EarlyBytes)} {
		for _, hosted := range []bool{false, true} {
			m := newMover(t, p, timed())
			m.SetPulses(hosted)
			m.SetLog(discardLog{})
			move(t, m, 512)
			if n := testing.AllocsPerRun(200, func() { move(t, m, 512) }); n != 0 {
				t.Errorf("%T, hosted %v: %v allocations", p, hosted, n)
			}
		}
	}
}

// BenchmarkDecision is the cost of one decision: an operation is one report of
// progress and the question what may move, with no bytes behind it. The policy
// says yes in the share of them that transfers/op states; then the end of the
// transfer is part of the operation, and the question whether more may move, as
// are a frame's start and its end.
func BenchmarkDecision(b *testing.B) {
	for _, c := range []struct {
		name   string
		policy pipeline.Policy
		clock  memory.Clock
		burst  int
	}{
		{"store-and-forward", pipeline.StoreAndForward{}, nil, 512},
		{"static", pipeline.Static{Pulse: 512}, nil, 512},
		{"eager", pipeline.Eager{MinPulse: 512}, nil, 512},
		{"auto", pipeline.NewAuto(pipeline.FewTransfers), nil, 512},
		{"auto-learning", pipeline.NewAuto(pipeline.FewTransfers), ticks(), 512},
		// All of a frame in one decision: the whole cost of a small message.
		{"frame", pipeline.Eager{MinPulse: 512}, nil, 8192},
	} {
		b.Run(c.name, func(b *testing.B) {
			m := newMover(b, c.policy, c.clock)
			transfers, decisions := 0, 0
			b.ReportAllocs()
			for b.Loop() {
				if decisions%(8192/c.burst) == 0 {
					if err := m.Start(8192, 0); err != nil {
						b.Fatal(err)
					}
				}
				decisions++
				if err := m.Arrived((decisions-1)%(8192/c.burst)*c.burst + c.burst); err != nil {
					b.Fatal(err)
				}
				for n, last := m.Next(); n > 0; n, last = m.Next() {
					transfers++
					if err := m.Done(); err != nil {
						b.Fatal(err)
					}
					if last {
						break
					}
				}
			}
			b.ReportMetric(float64(transfers)/float64(b.N), "transfers/op")
		})
	}
}

// BenchmarkWhole is the cost of the one decision that a frame takes which is all
// there: what a small message pays in each direction.
func BenchmarkWhole(b *testing.B) {
	for name, p := range map[string]pipeline.Policy{"store-and-forward": pipeline.StoreAndForward{}, "eager": pipeline.Eager{MinPulse: 512}} {
		b.Run(name, func(b *testing.B) {
			m := newMover(b, p, nil)
			b.ReportAllocs()
			for b.Loop() {
				if !m.Whole(8192, 0) {
					b.Fatal("refused")
				}
			}
		})
	}
}

// ticks is a clock that goes on by 10 ns at each look, so that the cost of a real
// clock is left out.
func ticks() memory.Clock {
	now := int64(0)
	return func() int64 { now += 10_000; return now }
}
