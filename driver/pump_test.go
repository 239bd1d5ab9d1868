package driver_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// pumpRig is a fake device whose frames the host decides about.
type pumpRig struct {
	d     *fakeDevice
	n     *driver.NIC
	lanes *[2]*fakeLane
}

func newPumpRig(t *testing.T, p driver.Policy) *pumpRig {
	t.Helper()
	r := &pumpRig{}
	r.d, r.n = newDMA(t, func(d *fakeDevice) { d.vectors = 0 })
	r.lanes = newLanes(r.d)
	p.At = driver.AtHost
	must.OK(t, r.n.SetPolicy(p))
	const both = datasheet.DMAControlHostTx | datasheet.DMAControlHostRx
	must.Be(t, r.d.dmaRegister(datasheet.RegDMAControl), both, "DMA control")
	return r
}

// do runs f as the device, and lets the host see what it did.
func (r *pumpRig) do(f func()) {
	r.d.with(f)
	r.n.Poll()
}

// until polls, as an application does, until f is true of the device.
func (r *pumpRig) until(t *testing.T, what string, f func() bool) {
	t.Helper()
	waittest.Until(t, what, func() (ok bool) {
		r.n.Poll()
		r.d.with(func() { ok = f() })
		return ok
	})
}

// left waits until the host has seen that n frames have left.
func (r *pumpRig) left(t *testing.T, n uint64) driver.PolicyState {
	t.Helper()
	var s driver.PolicyState
	waittest.Until(t, "the host sees that frames have left", func() bool {
		r.n.Poll()
		s = mustState(t, r.n)
		return s.Pump.Frames >= n
	})
	return s
}

// TestPumpProperty: whatever the policy, the frames, and how they arrive and
// leave, every byte is allowed once and none before it has arrived (fakeLane
// checks both), and every frame leaves.
func TestPumpProperty(t *testing.T) {
	names := driver.HostPolicies()
	rapid.Check(t, func(rt *rapid.T) {
		d := newFake(t)
		d.addDMA()
		lanes := newLanes(d)
		n := must.Get(driver.New(t.Context(), d, driver.Options{Logger: quiet}))(rt)
		defer func() {
			should.OK(rt, n.Close())
		}()
		must.OK(rt, n.SetPolicy(driver.Policy{Name: rapid.SampledFrom(names).Draw(rt, "policy"), At: driver.AtHost}))
		l := lanes[rapid.IntRange(0, 1).Draw(rt, "lane")]
		l.p.Frame = rapid.Uint32().Draw(rt, "first frame")
		frames := rapid.IntRange(1, 6).Draw(rt, "frames")
		for range frames {
			d.with(func() {
				l.frame(rapid.Uint32Range(1, 4096-datasheet.HeaderSize).Draw(rt, "length"), rapid.Uint32().Draw(rt, "queued"))
			})
			for end := time.Now().Add(timeout); l.p.Sent < l.p.Length; n.Poll() {
				d.with(func() {
					if left := l.p.Length - l.p.Arrived; left > 0 && rapid.Bool().Draw(rt, "more arrives") {
						l.arrive(rapid.Uint32Range(1, left).Draw(rt, "arrives"))
					}
					if w := l.waiting(); w > 0 {
						l.carry(rapid.Uint32Range(1, w).Draw(rt, "leaves"))
					}
				})
				if time.Now().After(end) {
					rt.Fatalf("frame of %d: %d arrived, %d allowed, %d sent", l.p.Length, l.p.Arrived, l.allowed, l.p.Sent)
				}
			}
		}
		s, err := n.Policy()
		if err != nil || s.Pump.TakenOver+s.Pump.BadProgress != 0 || s.Pump.Pulses < uint64(frames) {
			rt.Fatalf("%+v, %v", s, err)
		}
	})
}

// TestPumpStepAllocatesNothing: neither counters that have changed nor such that
// have not cost an allocation, with a policy that learns and one that does not.
func TestPumpStepAllocatesNothing(t *testing.T) {
	for _, name := range []string{"static", "auto"} {
		r := newPumpRig(t, driver.Policy{Name: name})
		l := r.lanes[0]
		pulses := make([]uint32, 0, 1<<16)
		round := func() {
			r.d.with(func() { l.frame(4000, 1); l.pulses = pulses[:0]; l.arrive(1000) })
			r.n.Poll()
			r.d.with(func() { l.arrive(3000) })
			for l.p.Sent < 4000 {
				r.n.Poll()
				r.d.with(func() {
					if l.waiting() > 0 {
						l.carry(l.waiting())
					}
				})
			}
		}
		round()
		should.Be(t, testing.AllocsPerRun(1000, round), 0, "%s: allocations a frame", name)
		should.Be(t, testing.AllocsPerRun(1000, func() { r.n.Poll() }), 0, "%s: allocations in a look in vain", name)
	}
}

// observer records what it is told.
type observer struct {
	pipeline.Static
	seen    []pipeline.Observation
	arrived []int
	elapsed []int64
}

func (o *observer) Observe(s pipeline.Observation) { o.seen = append(o.seen, s) }
func (o *observer) ObserveArrival(bytes int, elapsed int64) {
	o.arrived, o.elapsed = append(o.arrived, bytes), append(o.elapsed, elapsed)
}

// TestPumpObserves: a policy that learns is told of each transfer and of each
// frame's arrival, in the scheduler's terms.
func TestPumpObserves(t *testing.T) {
	o := &observer{Static: pipeline.Static{Pulse: 300}}
	other := func() pipeline.Policy { return pipeline.StoreAndForward{} }
	r := newPumpRig(t, driver.Policy{Plan: &pipeline.Plan{Send: func() pipeline.Policy { return o }, Receive: other}})
	l := r.lanes[0]
	for range 2 {
		r.do(func() { l.frame(1000, 2) })
		r.do(func() { l.arrive(400) })
		r.do(func() { l.arrive(600) })
		r.until(t, "the frame has left", func() bool {
			if l.waiting() > 0 {
				l.carry(l.waiting())
			}
			return l.p.Sent == 1000
		})
	}
	r.left(t, 2)
	if len(o.seen) != 8 || !slices.Equal(o.arrived, []int{1000, 1000}) {
		t.Fatalf("%+v, %v", o.seen, o.arrived)
	}
	for i, s := range o.seen {
		want := []pipeline.Observation{{Bytes: 300, Left: 700}, {Bytes: 300, Left: 400}, {Bytes: 300, Left: 100}, {Bytes: 100}}[i%4]
		if s.Bytes != want.Bytes || s.Left != want.Left || s.Queued != 2 || s.Elapsed < 0 || s.Decision != 0 {
			t.Errorf("%d: %+v", i, s)
		}
	}
}

// holds never lets a frame go before it is whole.
type holds struct{ asked atomic.Int64 }

func (h *holds) Next(pipeline.View) int { h.asked.Add(1); return 0 }

// TestPumpTakenOver: the deadline of a frame passes. The host gives no more
// pulses for it, and goes on with the next.
func TestPumpTakenOver(t *testing.T) {
	h := &holds{}
	own := func() pipeline.Policy { return h }
	r := newPumpRig(t, driver.Policy{Plan: &pipeline.Plan{Name: "holds", Send: own, Receive: own}})
	l := r.lanes[1]
	r.d.with(func() { l.frame(1000, 3); l.arrive(600) })
	r.until(t, "the policy is asked", func() bool { return h.asked.Load() > 0 })
	r.d.with(func() {
		l.allowed = 1000
		l.carry(600)
		l.arrive(400)
	})
	for range 100 {
		r.n.Poll()
	}
	r.d.with(func() { l.carry(400) })
	r.d.with(func() { l.frame(50, 0); l.arrive(50) })
	r.until(t, "the next frame may go", func() bool { return l.waiting() == 50 })
	if s := mustState(t, r.n); s.Pump.TakenOver != 1 || s.Pump.Pulses != 1 || s.Receive.Name != "holds" || s.Receive.MinPulse != 0 {
		t.Errorf("%+v", s)
	}
}

// TestPumpClosed: a NIC is closed, and its policy changed, while frames wait.
func TestPumpClosed(t *testing.T) {
	h := &holds{}
	own := func() pipeline.Policy { return h }
	r := newPumpRig(t, driver.Policy{Plan: &pipeline.Plan{Send: own, Receive: own}})
	for _, l := range r.lanes {
		r.do(func() { l.frame(1000, 0); l.arrive(999) })
	}
	must.OK(t, r.n.SetPolicy(driver.Policy{Name: "static"}))
	should.Be(t, r.d.dmaRegister(datasheet.RegDMAControl), 0, "DMA control")
	must.OK(t, r.n.SetPolicy(driver.Policy{Plan: &pipeline.Plan{Send: own, Receive: own}, At: driver.AtHost}))
	for _, l := range r.lanes {
		r.do(func() { l.frame(1000, 0); l.arrive(999) })
	}
	var atReset uint32
	r.d.with(func() {
		r.d.onWrite = func(offset uint64, v uint32) bool {
			if offset == datasheet.HealthOffset+datasheet.RegControl {
				atReset = r.d.get(datasheet.DMAOffset + datasheet.RegDMAControl)
			}
			return false
		}
	})
	must.OK(t, r.n.Close())
	should.Be(t, atReset, 0, "DMA control when the device was reset")
}
