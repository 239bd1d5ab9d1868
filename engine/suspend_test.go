package engine_test

import (
	"slices"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// passing is a processor that lets everything go on as it would.
func passing() *scripted {
	return &scripted{
		pulse:  func(_ engine.Direction, v pipeline.View, _ uint32) (int, bool) { return v.Available(), true },
		filter: func(engine.Direction, []byte, uint32) (engine.Action, uint32, bool) { return engine.FramePass, 0, true },
		demux:  func([]byte, uint32) (uint32, uint32, bool) { return engine.DefaultQueue, engine.DefaultQueue, true },
	}
}

// TestSuspension: what a hook would be asked about waits, and arrives whole and in
// order when the suspension ends, however it does. Nobody repeats the messages.
func TestSuspension(t *testing.T) {
	pass := passing()
	for _, hook := range []engine.Hook{engine.HookPulseTransmit, engine.HookPulseReceive, engine.HookDemultiplex,
		engine.HookFilterTransmit, engine.HookFilterReceive} {
		for _, end := range []string{"a program", "nothing", "the limit"} {
			// A wire that holds few frames: senders wait, and nothing is lost.
			w, v, p := pair(t, unreliable, func(_ *engine.Config, p *port) { p.room = 4 })
			n := w.b
			if hook == engine.HookPulseTransmit || hook == engine.HookFilterTransmit {
				n = w.a
			}
			n.use(pass, hook)
			const messages, size = 20, 5000
			m := newBatch(v, p, slices.Repeat([]int{size}, messages)...)
			w.settle()
			const limit = 50 * time.Millisecond
			n.suspend(limit)
			began := w.now
			m.post()
			w.settle()
			for _, r := range m.receives {
				must.Be(t, r.Status().Done(), false, "hook %d: a message has passed", hook)
			}
			switch end {
			case "a program":
				n.use(pass, hook)
			case "nothing":
				n.e.Exclusive(func() { n.e.SetProcessor(nil, 0, 0) })
			}
			w.run("the last message", m.done)
			if end == "the limit" && w.now-began < limit || end != "the limit" && w.now-began >= limit {
				t.Errorf("hook %d: until %s: %v", hook, end, w.now-began)
			}
			m.mustArrive()
		}
	}
}

// TestLongSuspension: a peer is not dead because nobody listened to it.
func TestLongSuspension(t *testing.T) {
	for _, hook := range []engine.Hook{engine.HookFilterTransmit, engine.HookFilterReceive} {
		w, v, p := pair(t, nil)
		dead := engine.DefaultTiming().Dead
		w.a.use(&scripted{}, hook)
		w.a.suspend(time.Hour)
		// The other end is patient, too.
		w.b.use(&scripted{}, engine.HookFilterTransmit, engine.HookFilterReceive)
		w.b.suspend(time.Hour)
		m := newBatch(v, p, 9000)
		m.post()
		for end := w.now + 3*dead; w.now < end; w.now += 5 * time.Millisecond {
			w.a.e.Step()
			w.b.e.Step()
		}
		for _, n := range []*node{w.a, w.b} {
			n.e.Exclusive(func() { n.e.SetProcessor(nil, 0, 0) })
		}
		m.mustArrive()
	}
}
