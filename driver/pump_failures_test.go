package driver_test

import (
	"sync/atomic"
	"testing"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/pipeline"
)

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
