package driver_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// TestPumpNonsense: counters that make no sense are counted and give no pulse,
// nor does the frame afterwards; the next one is as ever.
func TestPumpNonsense(t *testing.T) {
	const active = datasheet.ProgressActive
	for name, bad := range map[string]datasheet.Progress{
		"sent before it arrived":   {Frame: 1, Length: 1000, Arrived: 100, Sent: 101, Flags: active},
		"arrived beyond the frame": {Frame: 1, Length: 1000, Arrived: 1001, Flags: active},
		"frame too long":           {Frame: 1, Length: 1 << 20, Arrived: 1 << 20, Flags: active},
		"length of all ones":       {Frame: 1, Length: 0xffffffff, Arrived: 0xffffffff, Sent: 0xfffffff0, Flags: active},
		"frame of nothing":         {Frame: 1, Flags: active},
		"went backwards":           {Frame: 1, Length: 1000, Arrived: 499, Flags: active},
		"frame grew":               {Frame: 1, Length: 2000, Arrived: 2000, Flags: active},
		"all ones":                 {Frame: 0xffffffff, Length: 0xffffffff, Arrived: 0xffffffff, Sent: 0xffffffff, Queued: 0xffffffff, Flags: 0xffffffff},
		"over, with more sent":     {Frame: 1, Length: 1000, Arrived: 1000, Sent: 1001},
	} {
		t.Run(name, func(t *testing.T) {
			r := newPumpRig(t, driver.Policy{Name: "store-and-forward"})
			l := r.lanes[0]
			r.do(func() { l.frame(1000, 0) })
			r.do(func() { l.arrive(500) })
			r.until(t, "nonsense is counted", func() bool {
				if mustBad(t, r) == 0 {
					r.d.show(0, bad)
				}
				return mustBad(t, r) > 0
			})
			r.do(func() { l.arrive(500) }) // sound again, but not the host's any more
			for range 100 {
				r.n.Poll()
			}
			r.d.with(func() {
				if len(l.pulses) != 0 {
					t.Errorf("pulses %v", l.pulses)
				}
				l.allowed = 1000
				l.carry(1000) // the deadline has passed
				l.frame(700, 0)
				l.arrive(700)
			})
			r.until(t, "the next frame may go", func() bool { return l.waiting() == 700 })
			if s := mustState(t, r.n); s.At != driver.AtHost || s.Pump.BadProgress == 0 || s.Pump.Pulses != 1 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// mustBad counts nonsense. It is called with the device's lock held, which no
// register is read with.
func mustBad(t *testing.T, r *pumpRig) uint64 {
	r.d.mu.Unlock()
	defer r.d.mu.Lock()
	return mustState(t, r.n).Pump.BadProgress
}

// TestPumpFallsBack: a device that tells nothing but nonsense decides by itself
// again, whether somebody polls or not; the state says why.
func TestPumpFallsBack(t *testing.T) {
	for name, poll := range map[string]bool{"polled": true, "alone": false} {
		t.Run(name, func(t *testing.T) {
			r := newPumpRig(t, driver.Policy{})
			bad := datasheet.Progress{Length: 100, Arrived: 200, Flags: datasheet.ProgressActive}
			waittest.Until(t, "the pump gives up", func() bool {
				r.d.with(func() {
					if r.d.get(datasheet.DMAOffset+datasheet.RegDMAControl) != 0 {
						bad.Frame++
						r.d.show(1, bad)
					}
				})
				if poll {
					r.n.Poll()
				}
				return r.d.dmaRegister(datasheet.RegDMAControl) == 0
			})
			var s driver.PolicyState
			waittest.Until(t, "the state says so", func() bool { s = mustState(t, r.n); return s.Fallback != nil })
			if s.At != driver.AtNIC || !errors.Is(s.Fallback, driver.ErrProtocol) || !strings.Contains(s.Fallback.Error(), "length 100, arrived 200") ||
				s.Send.Name != "amp" || s.Send.MinPulse != 4096 {
				t.Errorf("%+v", s)
			}
			// It can be tried again.
			if err := r.n.SetPolicy(driver.Policy{At: driver.AtHost}); err != nil {
				t.Fatal(err)
			}
			l := r.lanes[0]
			r.d.with(func() { l.frame(10, 0); l.arrive(10) })
			r.until(t, "a frame may go", func() bool { return l.waiting() == 10 })
			if s := mustState(t, r.n); s.At != driver.AtHost || s.Fallback != nil {
				t.Errorf("%+v", s)
			}
		})
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

// TestPumpFrameGivenUp: a frame ends half way, as frames do when a connection
// is lost, and the next begins.
func TestPumpFrameGivenUp(t *testing.T) {
	r := newPumpRig(t, driver.Policy{Name: "static", MinPulseSend: 100})
	l := r.lanes[0]
	for i := range uint32(5) {
		r.d.with(func() { l.frame(1000, 0); l.arrive(500) })
		r.until(t, "it may go", func() bool { return l.waiting() == 100 })
		if i%2 == 0 {
			r.do(func() { l.p.Flags = 0; l.d.show(0, l.p) })
		}
	}
	if s := mustState(t, r.n); s.Pump.Pulses != 5 || s.Pump.Frames != 0 || s.Pump.BadProgress != 0 {
		t.Errorf("%+v", s.Pump)
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
	if err := r.n.SetPolicy(driver.Policy{Name: "static"}); err != nil {
		t.Fatal(err)
	}
	if got := r.d.dmaRegister(datasheet.RegDMAControl); got != 0 {
		t.Errorf("DMA control %#x", got)
	}
	if err := r.n.SetPolicy(driver.Policy{Plan: &pipeline.Plan{Send: own, Receive: own}, At: driver.AtHost}); err != nil {
		t.Fatal(err)
	}
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
	if err := r.n.Close(); err != nil {
		t.Fatal(err)
	}
	if atReset != 0 {
		t.Errorf("DMA control %#x when the device was reset", atReset)
	}
}

// TestPumpRemoved: the device is pulled out under the pump.
func TestPumpRemoved(t *testing.T) {
	r := newPumpRig(t, driver.Policy{})
	l := r.lanes[0]
	r.d.with(func() { l.frame(100, 0); l.arrive(100) })
	r.until(t, "it may go", func() bool { return l.waiting() == 100 })
	r.d.remove()
	if _, err := r.n.Health(contextFor(t)); !errors.Is(err, driver.ErrDeviceGone) {
		t.Error(err)
	}
	if err := r.n.Close(); err != nil {
		t.Error(err)
	}
}
