package engine_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// pump is the host's side of pulses: it reads the progress counters in its own
// memory.
type pump struct {
	n    *node
	mem  []byte
	iova uint64
}

func (n *node) newPump() *pump {
	mem, _, iova := n.alloc(datasheet.ProgressAreaSize)
	n.e.SetProgressArea(iova)
	return &pump{n: n, mem: mem, iova: iova}
}

// progress reads the counters of direction d.
func (p *pump) progress(d engine.Direction) (v datasheet.Progress) {
	p.n.w.t.Helper()
	if !datasheet.ProgressAt(p.mem[int(d)*datasheet.ProgressSize:]).Load(&v) {
		p.n.w.t.Fatal("the counters are being written, by nobody")
	}
	if v.Sent > v.Arrived || v.Arrived > v.Length {
		p.n.w.t.Fatalf("counters %+v", v)
	}
	return v
}

// shows checks the counters.
func (p *pump) shows(d engine.Direction, frame, length, arrived, sent, queued uint32, active bool) {
	p.n.w.t.Helper()
	v := p.progress(d)
	flags := uint32(0)
	if active {
		flags = datasheet.ProgressActive
	}
	want := datasheet.Progress{Sequence: v.Sequence, Frame: frame, Length: length, Arrived: arrived, Sent: sent, Queued: queued, Flags: flags}
	if v != want {
		p.n.w.t.Fatalf("%v counters are %+v, want %+v", d, v, want)
	}
}

// TestPulsesOfTheSender lets a frame leave piece by piece, as the host says.
func TestPulsesOfTheSender(t *testing.T) {
	w, v, p := pair(t, nil, inParts(nil), bursts(1000), policies(nil, pipeline.Eager{MinPulse: 1}))
	host := w.a.newPump()
	w.a.e.SetPulses(engine.Transmit, true)
	s, out := v.descriptor(3000)
	r, in := p.descriptor(3000)
	copy(out[0], pattern(3000, 1))
	p.postRecv(r)
	w.settle()
	v.postSend(s)
	w.a.e.Step()
	host.shows(engine.Transmit, 0, 1984, 1000, 0, 1, true)
	// Of what is there and no more.
	for _, bad := range []struct {
		frame uint8
		n     uint32
	}{{1, 100}, {0, 0}, {0, 1001}, {0, datasheet.PulseBytes}, {255, 1}} {
		if w.a.e.Pulse(engine.Transmit, bad.frame, bad.n) {
			t.Errorf("a pulse for %d bytes of frame %d passes", bad.n, bad.frame)
		}
	}
	if w.a.e.Pulse(engine.Receive, 0, 1) {
		t.Error("a pulse passes where the host does not decide")
	}
	if n := w.a.e.DMA().Refused; n != 6 {
		t.Errorf("%d pulses refused", n)
	}
	if !w.a.e.Pulse(engine.Transmit, 0, 600) || w.a.e.Pulse(engine.Transmit, 0, 401) {
		t.Error("pulses do not add up")
	}
	w.a.e.Step()
	host.shows(engine.Transmit, 0, 1984, 1984, 600, 1, true)
	// The peer has what was let go, and nothing else has left: no header of another
	// frame, no acknowledgement.
	w.settle()
	if !bytes.Equal(in[0][:600], pattern(3000, 1)[:600]) || in[0][600] != 0 || r.Status().Done() {
		t.Fatal("the peer does not have what has left")
	}
	if !w.a.e.DMA().Movers[engine.Transmit].Held {
		t.Error("the frame does not wait")
	}
	if !w.a.e.Pulse(engine.Transmit, 0, 1384) {
		t.Error("the last pulse does not pass")
	}
	w.settle()
	host.shows(engine.Transmit, 1, 1016, 1016, 0, 0, true)
	before := host.progress(engine.Transmit)
	w.settle()
	if after := host.progress(engine.Transmit); after != before {
		t.Errorf("counters that did not change were written: %+v, then %+v", before, after)
	}
	if !w.a.e.Pulse(engine.Transmit, 1, 1016) {
		t.Error("a pulse for all of the next frame does not pass")
	}
	w.run("the message", func() bool { return s.Status().Done() && r.Status().Done() })
	host.shows(engine.Transmit, 1, 1016, 1016, 1016, 0, false)
	mustEqual(t, in[0], out[0])
	if d := w.a.e.DMA(); d.Timeouts != 0 || !d.Pulses[engine.Transmit] || d.Pulses[engine.Receive] {
		t.Errorf("%+v", d)
	}
}

// TestPulsesOfTheReceiver lets a frame be placed piece by piece.
func TestPulsesOfTheReceiver(t *testing.T) {
	levels(t, func(t *testing.T, level datasheet.Reliability, change func(*datasheet.CreateEndpointBody)) {
		w, v, p := pair(t, change)
		host := w.b.newPump()
		w.b.e.SetPulses(engine.Receive, true)
		s, out := v.descriptor(2100)
		r, in := p.descriptor(2100)
		copy(out[0], pattern(2100, 1))
		p.postRecv(r)
		v.postSend(s)
		w.settle()
		host.shows(engine.Receive, 0, 1984, 1984, 0, 1, true)
		if !w.b.e.Pulse(engine.Receive, 0, 1000) {
			t.Fatal("the pulse does not pass")
		}
		w.settle()
		host.shows(engine.Receive, 0, 1984, 1984, 1000, 1, true)
		if !bytes.Equal(in[0][:1000], out[0][:1000]) || in[0][1000] != 0 {
			t.Fatal("not what was let go has landed")
		}
		if !w.b.e.Pulse(engine.Receive, 0, 984) {
			t.Fatal("the pulse does not pass")
		}
		w.settle()
		host.shows(engine.Receive, 1, 116, 116, 0, 0, true)
		// Switched off, the frame goes on by itself.
		w.b.e.SetPulses(engine.Receive, false)
		w.run("the message", func() bool { return s.Status().Done() && r.Status().Done() })
		mustEqual(t, in[0], out[0])
		if d := w.b.e.DMA(); d.Timeouts != 0 {
			t.Errorf("%+v", d)
		}
	})
}

// TestPulseDeadline leaves a host's frames waiting: each goes on by itself after
// the deadline and not before.
func TestPulseDeadline(t *testing.T) {
	w, v, p := pair(t, nil, policies(pipeline.Static{Pulse: 700}, nil))
	w.a.e.SetPulses(engine.Transmit, true)
	w.b.e.SetPulses(engine.Receive, true)
	w.a.e.SetPulseDeadline(30 * time.Millisecond)
	for i := range 3 {
		before := w.now
		if s, r, got := message(v, p, pattern(900, uint64(i))); s.Failed() || r.Failed() || !bytes.Equal(got, pattern(900, uint64(i))) {
			t.Fatalf("%v, %v", s, r)
		}
		// 10 ms is the receiver's reset value.
		if took := w.now - before; took < 40*time.Millisecond || took > 50*time.Millisecond {
			t.Fatalf("message %d took %v", i, took)
		}
	}
	if a, b := w.a.e.DMA(), w.b.e.DMA(); a.Timeouts != 3 || b.Timeouts != 3 || a.Refused+b.Refused != 0 {
		t.Fatalf("%+v, %+v", a, b)
	}
}

// TestOthersWait posts on a second connection while a frame waits for the host:
// nothing overtakes it, and nothing is lost.
func TestOthersWait(t *testing.T) {
	w, v, p := pair(t, nil)
	x, y := w.a.newVI(v.handle, nil), w.b.newVI(p.handle, nil)
	connect(x, y)
	w.a.e.SetPulses(engine.Transmit, true)
	w.a.e.SetPulseDeadline(time.Hour)
	s, _ := v.descriptor(100)
	other, _ := x.descriptor(100)
	r, _ := p.descriptor(100)
	s2, _ := y.descriptor(100)
	r2, _ := x.descriptor(100)
	otherR, _ := y.descriptor(100)
	p.postRecv(r)
	y.postRecv(otherR)
	x.postRecv(r2)
	w.settle()
	v.postSend(s)
	w.a.e.Step()
	x.postSend(other)
	y.postSend(s2)
	w.settle()
	if !r2.Status().Done() || other.Status().Done() || s.Status().Done() {
		t.Fatal("receiving waits for sending, or a frame has overtaken another")
	}
	for frame := range uint8(2) {
		if !w.a.e.Pulse(engine.Transmit, frame, 100) {
			t.Fatalf("the pulse for frame %d does not pass", frame)
		}
		w.settle()
	}
	w.run("the messages", func() bool {
		return s.Status().Done() && r.Status().Done() && other.Status().Done() && otherR.Status().Done() && s2.Status().Done()
	})
}

// TestHeldFrameOfALostConnection ends connections while a frame of theirs waits
// for the host, at either end: descriptors come back, and nobody touches their
// buffers afterwards.
func TestHeldFrameOfALostConnection(t *testing.T) {
	levels(t, func(t *testing.T, level datasheet.Reliability, change func(*datasheet.CreateEndpointBody)) {
		for _, by := range []string{"sender", "receiver"} {
			t.Run(by, func(t *testing.T) {
				w, v, p := pair(t, change, inParts(nil), bursts(64))
				w.a.e.SetPulses(engine.Transmit, true)
				w.a.e.SetPulseDeadline(time.Hour)
				w.b.e.SetPulses(engine.Receive, true)
				w.b.e.SetPulseDeadline(time.Hour)
				s, _ := v.descriptor(900)
				r, in := p.descriptor(900)
				p.postRecv(r)
				w.settle()
				v.postSend(s)
				w.settle()
				if !w.a.e.Pulse(engine.Transmit, 0, 500) {
					t.Fatal("the sender's pulse does not pass")
				}
				w.settle()
				if !w.b.e.Pulse(engine.Receive, 0, 300) {
					t.Fatal("the receiver's pulse does not pass")
				}
				w.settle()
				leaver, other := v, p
				if by == "receiver" {
					leaver, other = p, v
				}
				do(leaver.n, datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: leaver.id})
				w.run("the other's notice", func() bool { return other.state() == datasheet.StateError })
				if !s.Status().Failed() || !r.Status().Failed() {
					t.Fatalf("sent %v, received %v", s.Status(), r.Status())
				}
				clear(in[0])
				w.a.e.SetPulses(engine.Transmit, false)
				w.b.e.SetPulses(engine.Receive, false)
				w.settle()
				if !bytes.Equal(in[0], make([]byte, 900)) {
					t.Fatal("a buffer was written after its descriptor came back")
				}
				if by == "sender" && w.a.parts.aborts != 1 {
					t.Errorf("%d frames aborted", w.a.parts.aborts)
				}
				// The wire is free again.
				do(other.n, datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: other.id})
				connect(v, p)
				if s, r, got := message(v, p, pattern(900, 3)); s.Failed() || r.Failed() || !bytes.Equal(got, pattern(900, 3)) {
					t.Fatalf("%v, %v", s, r)
				}
			})
		}
	})
}

// TestHeldFrameWhoseMemoryGoes deregisters the memory of a message while a frame
// of it is held.
func TestHeldFrameWhoseMemoryGoes(t *testing.T) {
	levels(t, func(t *testing.T, level datasheet.Reliability, change func(*datasheet.CreateEndpointBody)) {
		for _, side := range []string{"sender", "receiver"} {
			t.Run(side, func(t *testing.T) {
				w, v, p := pair(t, change, inParts(nil), bursts(64), policies(nil, pipeline.Eager{MinPulse: 1}))
				buffers := map[string]*vi{"sender": v, "receiver": p}[side]
				extra := buffers.n.memory(0, 0)
				s, _ := v.descriptor()
				r, _ := p.descriptor()
				for _, e := range []struct {
					v *vi
					d *descriptors.Descriptor
				}{{v, s}, {p, r}} {
					_, at, _ := e.v.n.alloc(900)
					handle := e.v.handle
					if e.v == buffers {
						handle = extra
					}
					if err := e.d.AddData(at, handle, 900); err != nil {
						t.Fatal(err)
					}
				}
				w.a.e.SetPulses(engine.Transmit, true)
				w.a.e.SetPulseDeadline(time.Second)
				p.postRecv(r)
				w.settle()
				v.postSend(s)
				w.a.e.Step() // the first burst
				if !w.a.e.Pulse(engine.Transmit, 0, 64) {
					t.Fatal("the pulse does not pass")
				}
				w.a.e.Step()
				w.b.e.Step() // some of it lands
				do(buffers.n, datasheet.OpDeregisterMemory, datasheet.MemoryBody{Handle: extra})
				w.a.e.SetPulses(engine.Transmit, false)
				bad := s
				if side == "receiver" {
					bad = r
				}
				w.run("the message's end", func() bool { return bad.Status().Done() })
				want := datasheet.StatusProtectionError
				if side == "receiver" {
					want |= datasheet.StatusPartialPacket
				}
				if got := bad.Status() & datasheet.StatusErrorMask; got != want {
					t.Fatalf("%v, want %v", bad.Status(), want)
				}
				if level == datasheet.Unreliable {
					// It stays connected. A receive that was not used serves the next.
					next, _ := v.descriptor(1)
					if side == "receiver" {
						r, _ = p.descriptor(1)
						p.postRecv(r)
					}
					v.postSend(next)
					w.run("the next message", func() bool { return next.Status().Done() && r.Status().Done() })
					if next.Status().Failed() || r.Status().Failed() || r.Length() != 1 {
						t.Fatalf("the next message: %v, %v, %d bytes", next.Status(), r.Status(), r.Length())
					}
					return
				}
				w.run("the end of the connection", func() bool {
					return v.state() == datasheet.StateError && p.state() == datasheet.StateError
				})
			})
		}
	})
}

// TestProgressAreaFault has the bus refuse the counters: the host's pulses are
// over, messages are not.
func TestProgressAreaFault(t *testing.T) {
	w, v, p := pair(t, nil)
	host := w.a.newPump()
	w.a.e.SetPulses(engine.Transmit, true)
	w.a.e.SetPulses(engine.Receive, true)
	w.a.breakBus(func(iova uint64) bool { return iova == host.iova })
	before := w.now
	if s, r, got := message(v, p, pattern(5000, 1)); s.Failed() || r.Failed() || !bytes.Equal(got, pattern(5000, 1)) {
		t.Fatalf("%v, %v", s, r)
	}
	if w.now-before >= datasheet.PulseDeadlineReset*time.Microsecond {
		t.Error("somebody waited for pulses that cannot come")
	}
	if d := w.a.e.DMA(); d.Pulses != [2]bool{} || d.Timeouts != 0 || w.a.e.Counter(datasheet.CounterDMAFaults) != 1 {
		t.Fatalf("%+v, %d faults", d, w.a.e.Counter(datasheet.CounterDMAFaults))
	}
}

// TestResetOfAHeldFrame resets both NICs while a frame is held in each direction.
func TestResetOfAHeldFrame(t *testing.T) {
	w, v, p := pair(t, nil, inParts(nil), policies(pipeline.Eager{MinPulse: 9}, nil))
	w.a.e.SetPulses(engine.Transmit, true)
	w.b.e.SetPulses(engine.Receive, true)
	for _, n := range []*node{w.a, w.b} {
		n.e.SetPulseDeadline(time.Hour)
	}
	s, _ := v.descriptor(900)
	r, in := p.descriptor(900)
	p.postRecv(r)
	w.settle()
	v.postSend(s)
	w.settle()
	if !w.a.e.Pulse(engine.Transmit, 0, 500) {
		t.Fatal("the pulse does not pass")
	}
	w.settle()
	if err := w.a.e.SetPolicy(engine.Transmit, pipeline.Static{Pulse: 5}); err != nil {
		t.Fatal(err)
	}
	w.b.e.Reset()
	w.a.e.Reset()
	clear(in[0])
	w.settle()
	if d := w.a.e.DMA(); d != (engine.DMAState{}) || w.a.e.Policy(engine.Transmit) != (pipeline.Eager{MinPulse: 9}) {
		t.Errorf("%+v, %+v", d, w.a.e.Policy(engine.Transmit))
	}
	if w.a.parts.aborts != 1 || !bytes.Equal(in[0], make([]byte, 900)) {
		t.Errorf("%d frames aborted", w.a.parts.aborts)
	}
	v, p = w.a.newVI(w.a.memory(0, 0), nil), w.b.newVI(w.b.memory(0, 0), nil)
	connect(v, p)
	if s, r, got := message(v, p, pattern(900, 3)); s.Failed() || r.Failed() || !bytes.Equal(got, pattern(900, 3)) {
		t.Fatalf("%v, %v", s, r)
	}
}
