package memory_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
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

func (o *owner) Transfer(t memory.Transfer) {
	if t.Start > t.End || t.End > o.now || t.Bytes < 1 || !t.Outgoing && t.Queued != o.queued || t.Outgoing && t.Queued != 0 || t.Buffer != 0 {
		o.Fatalf("%+v at %d", t, o.now)
	}
	n := o.logged[t.Frame]
	if t.Outgoing {
		n[1] += t.Bytes
	} else {
		n[0] += t.Bytes
	}
	o.logged[t.Frame] = n
}

// policyOf draws one of the policies.
func policyOf(t *rapid.T) pipeline.Policy {
	name := rapid.SampledFrom(pipeline.PolicyNames()).Draw(t, "policy")
	plan := must.Get(pipeline.ByName(name, pipeline.Parameters{
		MinPulseSend:   rapid.IntRange(1, 700).Draw(t, "minpulse"),
		OptimalSend:    []pipeline.Step{{Wait: 3, Bytes: 7}},
		OptimalReceive: []pipeline.Step{{Wait: 64, Bytes: 64}},
	}))(t)
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
	must.OK(o, o.m.Start(o.length, o.queued))
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
			must.OK(o, o.m.Arrived(arrived))
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
			o.m.Drop()
			o.cancelled = true
		case k == 22:
			o.hosted = !o.hosted
			o.m.SetPulses(o.hosted)
			hosted = hosted && o.hosted
		case k == 23:
			must.OK(o, o.m.SetPolicy(policyOf(o.T)))
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
	must.OK(o, o.m.Done())
}

// TestBytesMoveOnceAndInOrder: whatever the policies, the frames, the host's
// pulses and the pace at which bytes come, what leaves is what arrived.
func TestBytesMoveOnceAndInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := &owner{T: t, random: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1)), logged: map[uint32][2]int{}}
		m := must.Get(memory.New(memory.Config{Policy: policyOf(t), Clock: func() int64 { o.now += 1000; return o.now }}))(t)
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
	m := must.Get(memory.New(memory.Config{Policy: p, Clock: clock}))(t)
	steps := func(expect ...int) {
		t.Helper()
		for _, n := range expect {
			if got, _ := m.Next(); got != n || m.Done() != nil {
				t.Fatalf("%d bytes, expected %d", got, n)
			}
		}
	}
	must.OK(t, m.Start(30, 7))
	must.OK(t, m.Arrived(20))
	steps(20)
	if p.moved != 20 || p.left != 10 || p.queued != 7 || p.arrived != 0 {
		t.Fatalf("told %+v", p)
	}
	must.OK(t, m.Arrived(30))
	steps(10)
	// Start at 10, decision and end at 20 and 30, arrival at 40, 50 and 60.
	if p.moved != 30 || p.left != 0 || p.arrived != 30 || p.elapsed != 10+30+10 {
		t.Fatalf("told %+v", p)
	}
	// Nobody reads the clock for a policy that does not learn.
	must.OK(t, m.SetPolicy(pipeline.StoreAndForward{}))
	reads = 0
	must.OK(t, errors.Join(m.Start(5, 0), m.Arrived(5)))
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
		should.Be(t, m.Plain(), (tt.whole || name == "pieces"), "%s: plain", name)
		for frame := range uint32(3) {
			before := m.State()
			if got := m.Whole(100, 0); got != (tt.whole || name == "a policy that is new" && frame > 0) {
				t.Errorf("%s: frame %d goes at once: %v", name, frame, got)
			} else if got {
				if s := m.State(); s != (memory.State{Frame: frame, Length: 100, Arrived: 100, Sent: 100, Newest: memory.Arrival{Frame: frame, Length: 100, Arrived: 100}}) || m.Started() != frame+1 {
					t.Errorf("%s: %+v after frame %d", name, s, frame)
				}
				continue
			}
			should.Be(t, m.State(), before, "%s", name)
			must.OK(t, errors.Join(m.Start(100, 0), m.Arrived(100)))
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

func newMover(t testing.TB, p pipeline.Policy, clock memory.Clock) *memory.Mover {
	t.Helper()
	m := must.Get(memory.New(memory.Config{Policy: p, Clock: clock}))(t)
	return m
}

// discardLog is a log that keeps nothing.
type discardLog struct{}

func (discardLog) Transfer(memory.Transfer) {}
