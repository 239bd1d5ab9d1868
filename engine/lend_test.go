package engine_test

import (
	"bytes"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// TestLentMessages: what may be lent is, and arrives as if it had been copied.
func TestLentMessages(t *testing.T) {
	levels(t, func(t *testing.T, level datasheet.Reliability, change func(*datasheet.CreateEndpointBody)) {
		for wire, o := range map[string]option{"whole frames": func(*engine.Config, *port) {}, "in parts": inParts(nil)} {
			t.Run(wire, func(t *testing.T) {
				w, v, p, a, b := lentPair(t, 8192, change, memory(2<<20), o)
				references := 0
				w.a.watchData(func(h *datasheet.Header, f []byte) {
					n := min(h.Extent-h.Offset, 8192)
					should.Be(t, uint32(h.Length), n, "%d bytes of %d at %d", h.Length, h.Extent, h.Offset)
					if h.Flags&datasheet.FrameReference == 0 {
						should.Be(t, len(f), datasheet.HeaderSize+int(n), "a frame bytes carries %d", n)
						return
					}
					references++
					if level == datasheet.Unreliable {
						t.Error("an unreliable connection lends")
					}
					should.Be(t, len(f), datasheet.HeaderSize+datasheet.ReferenceSize, "a frame bytes refers to %d", n)
				})
				sent := w.a.e.Counter(datasheet.CounterBytesSent)
				got := w.b.e.Counter(datasheet.CounterBytesReceived)
				total := uint64(0)
				for i, size := range []int{0, 1, 100, 4096, 8191, 8192, 8193, 65536, 1 << 20} {
					mustArrive(t, v, p, size, uint64(i))
					total += uint64(size)
				}
				if level == datasheet.Unreliable {
					should.Be(t, a.lent+b.got+references, 0, "%d lent, %d borrowed", a.lent, b.got)
				} else if want := 1 + 1 + 1 + 1 + 8 + 128; references != want || a.lent != want || b.got != want {
					// One each from 4096 to 8193, whose second frame is small.
					t.Errorf("%d frames refer, %d lent, %d borrowed, want %d", references, a.lent, b.got, want)
				}
				should.Be(t, w.a.e.Counter(datasheet.CounterBytesSent)-sent, total, "bytes counted")
				should.Be(t, w.b.e.Counter(datasheet.CounterBytesReceived)-got, total, "bytes counted as received")
				should.Be(t, w.b.e.Counter(datasheet.CounterFramesDropped), 0, "frames dropped")
			})
		}
	})
}

// TestLentSegments gathers and scatters what is lent, in as many pieces as fit a
// frame and in more.
func TestLentSegments(t *testing.T) {
	for _, tt := range []struct {
		name       string
		send, recv []int
		pieces     uint64 // of windows into memory
		references int    // 0: the frame carries its payload
	}{
		{"one", []int{8000}, []int{8000}, 0, 1},
		{"many receivers'", []int{8000}, []int{1, 0, 500, 7000, 499}, 0, 1},
		{"as many as fit", []int{1000, 0, 1, 1000, 2000, 3, 996, 2000, 1000}, []int{3000, 5000}, 0, 8},
		{"one more", []int{1000, 1, 1000, 2000, 3, 996, 2000, 999, 1}, []int{8000}, 0, 0},
		{"windows that end", []int{8000}, []int{8000}, 1600, 0},
		{"few windows", []int{8000}, []int{8000}, 4096, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, v, p, _, _ := lentPair(t, 8192, nil)
			if tt.pieces > 0 {
				w.a.e.Exclusive(func() { w.a.gen++; w.a.pieces = tt.pieces })
			}
			s, out := v.descriptor(tt.send...)
			r, in := p.descriptor(tt.recv...)
			for i, b := range out {
				copy(b, pattern(len(b), uint64(i)))
			}
			refers := -1
			w.a.watchData(func(h *datasheet.Header, f []byte) {
				if refers = 0; h.Flags&datasheet.FrameReference != 0 {
					refers = (len(f) - datasheet.HeaderSize) / datasheet.ReferenceSize
				}
			})
			p.postRecv(r)
			v.postSend(s)
			w.run("the message", func() bool { return s.Status().Done() && r.Status().Done() })
			if s.Status().Failed() || r.Status().Failed() {
				t.Fatalf("%v, %v", s.Status(), r.Status())
			}
			mustEqual(t, bytes.Join(in, nil), bytes.Join(out, nil))
			if tt.pieces > 0 {
				if refers < 2 {
					t.Errorf("%d references to memory in windows of %d bytes", refers, tt.pieces)
				}
			} else if refers != tt.references {
				t.Errorf("%d references, want %d", refers, tt.references)
			}
		})
	}
}

// TestNotLent: who wants to see bytes, or to say when they move, gets them.
func TestNotLent(t *testing.T) {
	for _, tt := range []struct {
		name  string
		o     option
		setup func(w *world, a *lender)
	}{
		{"the peer cannot read it", nil, func(_ *world, a *lender) { a.able = func([]byte) bool { return false } }},
		{"a wire with checksums", func(_ *engine.Config, p *port) { p.checksum = true }, nil},
		{"a filter", nil, func(w *world, _ *lender) {
			w.a.use(&scripted{filter: func(_ engine.Direction, f []byte, _ uint32) (engine.Action, uint32, bool) {
				if isData(f) && len(f) != datasheet.HeaderSize+8000 {
					w.t.Errorf("a filter is shown %d bytes", len(f))
				}
				return engine.FramePass, 0, true
			}}, engine.HookFilterTransmit)
		}},
		{"a policy that moves pieces", policies(pipeline.Static{Pulse: 1000}, nil), nil},
		{"a policy that learns", policies(pipeline.NewAuto(pipeline.EarlyBytes), nil), nil},
		{"a log", nil, func(w *world, _ *lender) { w.a.newLog(10) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := tt.o
			if o == nil {
				o = func(*engine.Config, *port) {}
			}
			w, v, p, a, b := lentPair(t, 8192, nil, o)
			if tt.setup != nil {
				tt.setup(w, a)
			}
			data := false
			w.a.watchData(func(h *datasheet.Header, f []byte) {
				data = true
				should.Be(t, h.Flags&datasheet.FrameReference, 0, "a frame refers to its payload")
			})
			mustArrive(t, v, p, 8000, 1)
			if !data || b.got != 0 {
				t.Errorf("%d borrowed", b.got)
			}
		})
	}
}

// TestLentFramesAreWhole: programs, pulses, policies and logs of a receiver see
// frames that carry what was lent, and the memory is not kept for them.
func TestLentFramesAreWhole(t *testing.T) {
	const size = 8000
	whole := func(t *testing.T, f []byte) {
		if !isData(f) {
			return
		}
		h := datasheet.HeaderAt(f)
		if h.Flags&datasheet.FrameReference != 0 || len(f) != datasheet.HeaderSize+size || int(h.Length) != size {
			t.Errorf("a frame of %d bytes, flags %#x", len(f), h.Flags)
		} else if !bytes.Equal(f[datasheet.HeaderSize:], pattern(size, 1)) {
			t.Error("it carries other bytes")
		}
	}
	t.Run("filter", func(t *testing.T) {
		w, v, p, _, b := lentPair(t, 8192, nil)
		shown := 0
		w.b.use(&scripted{filter: func(_ engine.Direction, f []byte, _ uint32) (engine.Action, uint32, bool) {
			whole(t, f)
			shown++
			return engine.FramePass, 0, true
		}}, engine.HookFilterReceive)
		mustArrive(t, v, p, size, 1)
		if shown == 0 || b.got != 1 || b.using {
			t.Errorf("%d frames shown, %d borrowed, in use: %v", shown, b.got, b.using)
		}
	})
	t.Run("filter that changes it", func(t *testing.T) {
		w, v, p, _, _ := lentPair(t, 8192, nil)
		w.b.port.mtu = 1000 // this side's frames are smaller
		w.b.use(&scripted{filter: func(_ engine.Direction, f []byte, _ uint32) (engine.Action, uint32, bool) {
			if isData(f) {
				f[datasheet.HeaderSize] ^= 0xff
			}
			return engine.FramePass, 0, true
		}}, engine.HookFilterReceive)
		data := pattern(size, 1)
		before := bytes.Clone(data)
		_, _, got := message(v, p, data)
		if before[0] ^= 0xff; !bytes.Equal(got, before) {
			t.Error("the change is not seen")
		}
	})
	t.Run("filter that sets the flag", func(t *testing.T) {
		w, v, p, _, b := lentPair(t, 8192, nil)
		spoil := true
		w.b.use(&scripted{filter: func(_ engine.Direction, f []byte, _ uint32) (engine.Action, uint32, bool) {
			if isData(f) && spoil {
				spoil = false
				datasheet.HeaderAt(f).Flags |= datasheet.FrameReference
			}
			return engine.FramePass, 0, true
		}}, engine.HookFilterReceive)
		mustArrive(t, v, p, size, 1)
		if n := w.b.e.Counter(datasheet.CounterFramesDropped); n != 1 || b.got != 2 {
			t.Errorf("%d frames dropped, %d borrowed", n, b.got)
		}
	})
	t.Run("demultiplexer", func(t *testing.T) {
		w, v, p, _, _ := lentPair(t, 8192, nil)
		w.b.use(&scripted{demux: func(f []byte, queue uint32) (uint32, uint32, bool) {
			whole(t, f)
			return queue, engine.DefaultQueue, true
		}}, engine.HookDemultiplex)
		mustArrive(t, v, p, size, 1)
	})
	t.Run("policy", func(t *testing.T) {
		_, v, p, _, b := lentPair(t, 8192, nil, policies(nil, pipeline.Static{Pulse: 1000}))
		mustArrive(t, v, p, size, 1)
		should.Be(t, b.got, 1, "borrowed")
	})
	t.Run("log", func(t *testing.T) {
		w, v, p, _, b := lentPair(t, 8192, nil)
		w.b.newLog(10)
		mustArrive(t, v, p, size, 1)
		should.Be(t, b.got, 1, "borrowed")
	})
	t.Run("pulses", func(t *testing.T) {
		w, v, p, _, b := lentPair(t, 8192, nil)
		host := w.b.newPump()
		w.b.e.SetPulses(engine.Receive, true)
		s, out := v.descriptor(size)
		r, in := p.descriptor(size)
		copy(out[0], pattern(size, 1))
		p.postRecv(r)
		w.settle()
		v.postSend(s)
		w.settle()
		host.shows(engine.Receive, 0, size, size, 0, 0, true)
		if b.got != 1 || b.using {
			t.Fatalf("%d borrowed, in use while the host thinks: %v", b.got, b.using)
		}
		w.b.e.Pulse(engine.Receive, 0, 3000)
		w.settle()
		if !bytes.Equal(in[0][:3000], out[0][:3000]) || in[0][3000] != 0 {
			t.Error("other bytes than the pulse allows have landed")
		}
		w.b.e.Pulse(engine.Receive, 0, size-3000)
		w.run("the message", func() bool { return r.Status().Done() && s.Status().Done() })
		mustEqual(t, in[0], out[0])
	})
}
