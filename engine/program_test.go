package engine_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// scripted is a Processor made of functions. A hook without one must not be asked.
type scripted struct {
	t      testing.TB
	pulse  func(d engine.Direction, v pipeline.View, frame uint32) (int, bool)
	filter func(d engine.Direction, frame []byte, number uint32) (engine.Action, uint32, bool)
	demux  func(frame []byte, queue uint32) (uint32, uint32, bool)
	misled map[engine.Hook]int
}

func (s *scripted) Pulse(d engine.Direction, v pipeline.View, frame uint32) (int, bool) {
	if s.pulse == nil {
		s.t.Error("a pulse hook was asked")
		return 0, false
	}
	return s.pulse(d, v, frame)
}

func (s *scripted) Filter(d engine.Direction, frame []byte, number uint32) (engine.Action, uint32, bool) {
	if s.filter == nil {
		s.t.Error("a filter hook was asked")
		return 0, 0, false
	}
	return s.filter(d, frame, number)
}

func (s *scripted) Demultiplex(frame []byte, queue uint32) (uint32, uint32, bool) {
	if s.demux == nil {
		s.t.Error("the demultiplexing hook was asked")
		return 0, 0, false
	}
	return s.demux(frame, queue)
}

func (s *scripted) Misled(h engine.Hook) { s.misled[h]++ }

// use has a processor asked at hooks whose programs may write.
func (n *node) use(s *scripted, hooks ...engine.Hook) *scripted {
	s.t, s.misled = n.w.t, map[engine.Hook]int{}
	var set engine.HookSet
	for _, h := range hooks {
		set |= h.Set()
	}
	n.e.Exclusive(func() { n.e.SetProcessor(s, set, set) })
	return s
}

func (n *node) suspend(limit time.Duration) { n.e.Exclusive(func() { n.e.Suspend(limit) }) }

// isData says of a whole frame whether it carries payload.
func isData(frame []byte) bool { return datasheet.HeaderAt(frame).Type == datasheet.FrameData }

// mustArrive checks that a message arrived as it was sent.
func mustArrive(t testing.TB, v, p *vi, size int, seed uint64) {
	t.Helper()
	data := pattern(size, seed)
	sent, received, got := message(v, p, data)
	if sent.Failed() || received.Failed() {
		t.Fatalf("sent %v, received %v", sent, received)
	}
	mustEqual(t, got, data)
}

// TestFiltersDrop: frames that programs drop are as lost ones.
func TestFiltersDrop(t *testing.T) {
	for _, c := range []struct {
		name string
		hook engine.Hook
		at   func(w *world) *node
	}{
		{"before sending", engine.HookFilterTransmit, func(w *world) *node { return w.a }},
		{"after arrival", engine.HookFilterReceive, func(w *world) *node { return w.b }},
	} {
		for wire, o := range map[string]option{"whole frames": func(*engine.Config, *port) {}, "in parts": inParts(nil)} {
			t.Run(c.name+", "+wire, func(t *testing.T) {
				w, v, p := pair(t, nil, o, bursts(100), policies(pipeline.Eager{MinPulse: 1}, pipeline.Eager{MinPulse: 1}))
				asked, dropped := 0, uint64(0)
				c.at(w).use(&scripted{filter: func(_ engine.Direction, frame []byte, number uint32) (engine.Action, uint32, bool) {
					if isData(frame) {
						if len(frame) != datasheet.HeaderSize+int(datasheet.HeaderAt(frame).Length) {
							t.Errorf("%d bytes of a frame with a payload of %d", len(frame), datasheet.HeaderAt(frame).Length)
						}
						want := v.id
						if c.hook == engine.HookFilterReceive {
							want = p.id
						}
						should.Be(t, number, want, "endpoint")
						if asked++; asked%3 == 0 {
							dropped++
							return engine.FrameDrop, 0, true
						}
					}
					return engine.FramePass, 0, true
				}}, c.hook)
				mustArrive(t, v, p, 20_000, 1)
				if n := c.at(w).e.Counter(datasheet.CounterFramesDropped); n != dropped || n == 0 {
					t.Errorf("%d frames dropped, want %d", n, dropped)
				}
			})
		}
	}
}

// TestFiltersChange: what programs write is sent, with a checksum that fits, or
// delivered; the wire's own memory stays as it is.
func TestFiltersChange(t *testing.T) {
	checksum := func(_ *engine.Config, p *port) { p.checksum = true }
	change := func(_ engine.Direction, frame []byte, _ uint32) (engine.Action, uint32, bool) {
		if isData(frame) {
			for i := range frame[datasheet.HeaderSize:] {
				frame[datasheet.HeaderSize+i] ^= 0xff
			}
		}
		return engine.FramePass, 0, true
	}
	for _, hook := range []engine.Hook{engine.HookFilterTransmit, engine.HookFilterReceive} {
		w, v, p := pair(t, nil, checksum)
		n := w.a
		if hook == engine.HookFilterReceive {
			n = w.b
		}
		n.use(&scripted{filter: change}, hook)
		data := pattern(5000, 1)
		var wire [][]byte
		w.a.port.spoil = func(f []byte) [][]byte { wire = append(wire, bytes.Clone(f), f); return [][]byte{f} }
		sent, received, got := message(v, p, data)
		if sent.Failed() || received.Failed() {
			t.Fatalf("sent %v, received %v", sent, received)
		}
		for i := range got {
			got[i] ^= 0xff
		}
		mustEqual(t, got, data)
		for i := 0; i < len(wire); i += 2 {
			should.Same(t, wire[i], wire[i+1], "a frame was changed on the wire")
		}
	}
}

// TestFilterMakesNonsense: a header that says what is impossible is dropped.
func TestFilterMakesNonsense(t *testing.T) {
	for name, spoil := range map[string]func(h *datasheet.Header){
		"length":  func(h *datasheet.Header) { h.Length = 0xffff },
		"version": func(h *datasheet.Header) { h.Version = 0x77 },
		"key":     func(h *datasheet.Header) { h.Key++ },
		"target":  func(h *datasheet.Header) { h.DestinationEndpoint = 0xffffffff },
	} {
		w, v, p := pair(t, nil)
		times := 0
		w.b.use(&scripted{filter: func(_ engine.Direction, frame []byte, _ uint32) (engine.Action, uint32, bool) {
			if times++; times == 1 {
				spoil(datasheet.HeaderAt(frame))
			}
			return engine.FramePass, 0, true
		}}, engine.HookFilterReceive)
		if name == "key" || name == "target" {
			// The answer to a stranger ends the connection; nothing else happens.
			s, _ := v.descriptor(10)
			r, _ := p.descriptor(10)
			p.postRecv(r)
			v.postSend(s)
			w.run("the send", func() bool { return s.Status().Done() })
		} else {
			mustArrive(t, v, p, 1000, 1)
		}
		should.Be(t, w.b.e.Counter(datasheet.CounterFramesDropped), 1, "%s: frames dropped", name)
	}
}

// TestStoppedPrograms: a program that is stopped in the middle loses and changes no
// frame, and is not asked again.
func TestStoppedPrograms(t *testing.T) {
	for _, hook := range []engine.Hook{engine.HookPulseTransmit, engine.HookPulseReceive, engine.HookDemultiplex,
		engine.HookFilterTransmit, engine.HookFilterReceive} {
		w, v, p := pair(t, unreliable, inParts(nil), bursts(300))
		asked := 0
		stop := func() bool { asked++; return asked < 3 }
		s := &scripted{
			pulse: func(_ engine.Direction, view pipeline.View, _ uint32) (int, bool) {
				ok := stop()
				return view.Available() / 2, ok
			},
			filter: func(_ engine.Direction, frame []byte, _ uint32) (engine.Action, uint32, bool) {
				ok := stop()
				if !ok {
					clear(frame)
				}
				return engine.FramePass, 0, ok
			},
			demux: func([]byte, uint32) (uint32, uint32, bool) { return engine.DefaultQueue, engine.DefaultQueue, stop() },
		}
		n := w.b
		if hook == engine.HookPulseTransmit || hook == engine.HookFilterTransmit {
			n = w.a
		}
		n.use(s, hook)
		for seed := range uint64(4) {
			mustArrive(t, v, p, 5000, seed)
		}
		should.Be(t, asked, 3, "hook %d was asked times", hook)
		should.Be(t, w.b.e.Counter(datasheet.CounterFramesDropped)+w.a.e.Counter(datasheet.CounterFramesDropped), 0, "hook %d: frames dropped", hook)
	}
}

// TestRedirects: the queue that a frame is for anyway, and others, which take no
// frames of a connection that is not theirs.
func TestRedirects(t *testing.T) {
	w, v, p := pair(t, nil)
	other := w.b.newVI(p.handle, nil)
	for _, c := range []struct {
		name          string
		queue, entry  uint32
		filter, demux int // answers that misled
	}{
		{"own queue", p.id, engine.DefaultQueue, 0, 0},
		{"default", engine.DefaultQueue, engine.DefaultQueue, -1, 0},
		{"another's", other.id, engine.DefaultQueue, 1, 1},
		{"none", 0xffffff, engine.DefaultQueue, 1, 1},
		{"entry", p.id, 3, 0, 1},
	} {
		for _, hook := range []engine.Hook{engine.HookFilterReceive, engine.HookDemultiplex} {
			if hook == engine.HookFilterReceive && c.filter < 0 {
				continue
			}
			s := w.b.use(&scripted{
				filter: func(_ engine.Direction, frame []byte, _ uint32) (engine.Action, uint32, bool) {
					if !isData(frame) {
						return engine.FramePass, 0, true
					}
					return engine.FrameRedirect, c.queue, true
				},
				demux: func(frame []byte, queue uint32) (uint32, uint32, bool) {
					if !isData(frame) {
						return engine.DefaultQueue, engine.DefaultQueue, true
					}
					should.Be(t, queue, p.id, "%s: queue", c.name)
					return c.queue, c.entry, true
				},
			}, hook)
			mustArrive(t, v, p, 1000, 1) // one frame
			want := c.filter
			if hook == engine.HookDemultiplex {
				want = c.demux
			}
			if s.misled[hook] != want || len(s.misled) > 1 {
				t.Errorf("%s, hook %d: misled %v times, want %d", c.name, hook, s.misled, want)
			}
		}
	}
}

// TestPulsePrograms: programs decide about transfers, and policies when they are
// gone.
func TestPulsePrograms(t *testing.T) {
	w, v, p := pair(t, nil, inParts(nil), bursts(500), policies(pipeline.StoreAndForward{}, pipeline.StoreAndForward{}))
	type question struct {
		frame                 uint32
		length, arrived, sent int
	}
	var asked [2][]question
	s := &scripted{pulse: func(d engine.Direction, v pipeline.View, frame uint32) (int, bool) {
		asked[d] = append(asked[d], question{frame, v.Length, v.Arrived, v.Sent})
		return min(v.Available(), 400), true
	}}
	w.a.use(s, engine.HookPulseTransmit)
	should.Be[pipeline.Policy](t, w.a.e.Policy(engine.Transmit), pipeline.StoreAndForward{}, "the configured policy")
	if err := w.a.e.SetPolicy(engine.Transmit, nil); err == nil {
		t.Error("a policy of nil is taken")
	}
	should.OK(t, w.a.e.SetPolicy(engine.Transmit, pipeline.Static{Pulse: 700}))
	mustArrive(t, v, p, 1200, 1)
	first := []question{{0, 1200, 500, 0}, {0, 1200, 500, 400}, {0, 1200, 1000, 500}, {0, 1200, 1000, 900}, {0, 1200, 1200, 1000}}
	should.Same(t, asked[engine.Transmit], first, "asked")
	asked[engine.Transmit] = nil
	mustArrive(t, v, p, 300, 1)
	should.Same(t, asked[engine.Transmit], []question{{1, 300, 300, 0}}, "asked")
	w.a.e.Exclusive(func() { w.a.e.SetProcessor(nil, 0, 0) })
	mustArrive(t, v, p, 1200, 1)
	should.Be(t, len(asked[engine.Transmit]), 1, "asked after it was gone")
	should.Be[pipeline.Policy](t, w.a.e.Policy(engine.Transmit), pipeline.Static{Pulse: 700}, "the policy")

	w.b.use(s, engine.HookPulseReceive)
	mustArrive(t, v, p, 5000, 1)
	if len(asked[engine.Receive]) < 10 {
		t.Errorf("asked %v", asked[engine.Receive])
	}
}

// TestResetForgetsPrograms: after a reset there is built-in behaviour, until
// somebody says otherwise.
func TestResetForgetsPrograms(t *testing.T) {
	w, _, _ := pair(t, nil)
	s := &scripted{} // must not be asked
	w.a.use(s, engine.HookFilterTransmit, engine.HookFilterReceive, engine.HookDemultiplex, engine.HookPulseReceive)
	w.a.suspend(time.Hour)
	w.a.e.Reset()
	w.b.e.Reset()
	w.mustServe(3000)
}
