package engine_test

import (
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
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
			var receives []*descriptors.Descriptor
			var bufs [][]byte
			for range messages {
				r, in := p.descriptor(size)
				receives, bufs = append(receives, r), append(bufs, in[0])
			}
			p.postRecv(receives...)
			w.settle()
			const limit = 50 * time.Millisecond
			n.suspend(limit)
			began := w.now
			var sends []*descriptors.Descriptor
			for i := range uint64(messages) {
				s, out := v.descriptor(size)
				copy(out[0], pattern(size, i))
				sends = append(sends, s)
			}
			v.postSend(sends...)
			w.settle()
			for _, r := range receives {
				if r.Status().Done() {
					t.Fatalf("hook %d: a message has passed", hook)
				}
			}
			all := func() bool { return receives[messages-1].Status().Done() }
			switch end {
			case "a program":
				n.use(pass, hook)
			case "nothing":
				n.e.Exclusive(func() { n.e.SetProcessor(nil, 0, 0) })
			}
			w.run("the last message", all)
			if end == "the limit" && w.now-began < limit || end != "the limit" && w.now-began >= limit {
				t.Errorf("hook %d: until %s: %v", hook, end, w.now-began)
			}
			for i := range uint64(messages) {
				if s := receives[i].Status(); s.Failed() {
					t.Fatalf("hook %d: message %d: %v", hook, i, s)
				}
				mustEqual(t, bufs[i], pattern(size, i))
			}
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
		s, out := v.descriptor(9000)
		r, in := p.descriptor(9000)
		copy(out[0], pattern(9000, 1))
		p.postRecv(r)
		v.postSend(s)
		for end := w.now + 3*dead; w.now < end; w.now += 5 * time.Millisecond {
			w.a.e.Step()
			w.b.e.Step()
		}
		for _, n := range []*node{w.a, w.b} {
			n.e.Exclusive(func() { n.e.SetProcessor(nil, 0, 0) })
		}
		w.run("the message", func() bool { return s.Status().Done() && r.Status().Done() })
		if s.Status().Failed() || r.Status().Failed() {
			t.Fatalf("sent %v, received %v", s.Status(), r.Status())
		}
		mustEqual(t, in[0], pattern(9000, 1))
	}
}

// TestReplacedUnderTraffic replaces programs again and again while unreliable
// messages flow: none is lost, and none overtakes another.
func TestReplacedUnderTraffic(t *testing.T) {
	w, v, p := pair(t, unreliable, memory(8<<20), inParts(nil), bursts(700), func(_ *engine.Config, p *port) { p.room = 6 })
	pass := passing()
	const messages, size = 30, 9000
	for round := range 20 {
		var sends, receives []*descriptors.Descriptor
		var bufs [][]byte
		for i := range messages {
			s, out := v.descriptor(size)
			copy(out[0], pattern(size, uint64(round*messages+i)))
			r, in := p.descriptor(size)
			sends, receives, bufs = append(sends, s), append(receives, r), append(bufs, in[0])
		}
		p.postRecv(receives...)
		w.settle()
		v.postSend(sends...)
		for step := 0; !receives[messages-1].Status().Done(); step++ {
			n := []*node{w.a, w.b}[step/7%2]
			set := engine.HookSet(step*2654435761>>8) & 0x1f
			switch step % 7 {
			case 2, 5:
				n.e.Exclusive(func() { n.e.SetProcessor(pass, set, set) })
			case 3:
				n.suspend(time.Hour)
			}
			w.a.e.Step()
			w.b.e.Step()
			if step > 1_000_000 {
				t.Fatal("the messages do not arrive")
			}
		}
		for i := range messages {
			mustEqual(t, bufs[i], pattern(size, uint64(round*messages+i)))
		}
		for _, n := range []*node{w.a, w.b} {
			n.e.Exclusive(func() { n.e.SetProcessor(nil, 0, 0) })
		}
	}
}
