package memory_test

import (
	"errors"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/engine/internal/memory"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// TestPoliciesChangeBetweenFrames: a new policy, pulses and a log wait until the buffers are empty, and no frame
// starts meanwhile.
func TestPoliciesChangeBetweenFrames(t *testing.T) {
	m := must.Get(memory.New(memory.Config{Policy: pipeline.Eager{MinPulse: 1}, Buffers: 4, Slow: true}))(t)
	for range 2 {
		must.OK(t, errors.Join(m.Start(10, 0), m.Arrived(10)))
	}
	must.OK(t, m.SetPolicy(pipeline.Static{Pulse: 4}))
	if err := m.Start(10, 0); !errors.Is(err, pipeline.ErrNoBuffer) || m.CanStart() {
		t.Errorf("a frame starts under the old policy: %v", err)
	}
	var sizes []int
	for m.Frames() > 0 {
		n, _ := m.Next()
		if sizes = append(sizes, n); m.Done() != nil {
			t.Fatal("a transfer that is none")
		}
	}
	must.OK(t, errors.Join(m.Start(10, 0), m.Arrived(10)))
	for m.Frames() > 0 {
		n, _ := m.Next()
		if sizes = append(sizes, n); m.Done() != nil {
			t.Fatal("a transfer that is none")
		}
	}
	should.Same(t, sizes, []int{10, 10, 4, 4, 2}, "transfers bytes")
}

// TestPulsesByFrame: with several frames in the buffers a pulse is for the oldest.
func TestPulsesByFrame(t *testing.T) {
	m := must.Get(memory.New(memory.Config{Policy: pipeline.StoreAndForward{}, Buffers: 4, Slow: true}))(t)
	m.SetPulses(true)
	for range 3 {
		must.OK(t, errors.Join(m.Start(10, 0), m.Arrived(10)))
	}
	for frame := range uint8(3) {
		if n, _ := m.Next(); n != 0 || !m.Held() {
			t.Fatalf("frame %d moves %d bytes without a pulse", frame, n)
		}
		if m.Pulse(frame+1, 10) || m.Pulse(frame, 11) || !m.Pulse(frame, 10) {
			t.Fatalf("pulses for frame %d", frame)
		}
		if n, last := m.Next(); n != 10 || !last || m.Done() != nil {
			t.Fatalf("frame %d moves %d bytes", frame, n)
		}
	}
}
