package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// What becomes of connections that end while messages are under way: what each
// side is told of its messages, and why the connection ended (SPEC.md 8.7).

func disconnect(v *vi) {
	v.n.w.t.Helper()
	do(v.n, datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: v.id})
}

// reliably runs f at both reliable levels.
func reliably(t *testing.T, f func(t *testing.T, change func(*datasheet.CreateEndpointBody))) {
	levels(t, func(t *testing.T, level datasheet.Reliability, change func(*datasheet.CreateEndpointBody)) {
		if level != datasheet.Unreliable {
			f(t, change)
		}
	})
}

// lostFor is the reason of the only event of n, which must be a lost connection.
func lostFor(t *testing.T, n *node) datasheet.Result {
	t.Helper()
	n.w.run("the end of the connection", func() bool { return len(n.events) > 0 })
	if len(n.events) != 1 || n.events[0].Code != datasheet.EventConnectionLost {
		t.Fatalf("events %+v, want one lost connection", n.events)
	}
	return datasheet.Result(n.events[0].Detail)
}

// underWay has v send messages of size bytes to p, of which p has a receive for the
// first few only, and stops as soon as these have been taken. From when v knows of
// the receives on, spoil decides what becomes of the frames of p.
func underWay(v, p *vi, sends, receives, size int, spoil func([]byte) [][]byte) (sent []*descriptors.Descriptor) {
	v.n.w.t.Helper()
	var received []*descriptors.Descriptor
	for range receives {
		r, _ := p.descriptor(size)
		received = append(received, r)
	}
	for range sends {
		s, _ := v.descriptor(size)
		sent = append(sent, s)
	}
	p.postRecv(received...)
	v.n.w.settle()
	p.n.port.spoil = spoil
	v.postSend(sent...)
	v.n.w.run("the messages", func() bool { return received[receives-1].Status().Done() })
	return sent
}

// held keeps the frames of a type back until another one has gone.
func held(of datasheet.FrameType) func([]byte) [][]byte {
	var kept [][]byte
	return func(f []byte) [][]byte {
		if datasheet.HeaderAt(f).Type == of {
			kept = append(kept, f)
			return nil
		}
		out := append([][]byte{f}, kept...)
		kept = nil
		return out
	}
}

func frameType(f []byte) datasheet.FrameType { return datasheet.HeaderAt(f).Type }

// TestTakenIsDone: a receiver that has taken all messages and disconnects at once
// has the sender know that they were taken, whatever the wire does to one of the
// frames that say so.
func TestTakenIsDone(t *testing.T) {
	for name, spoil := range map[string]func() func([]byte) [][]byte{
		"sound wire": func() func([]byte) [][]byte { return nil },
		"acknowledgements lost": func() func([]byte) [][]byte {
			return losing{datasheet.FrameAck: true}.spoil
		},
		"disconnect lost": func() func([]byte) [][]byte {
			return losing{datasheet.FrameDisconnect: true}.spoil
		},
		"first disconnect and acknowledgements lost": func() func([]byte) [][]byte {
			first := true
			return func(f []byte) [][]byte {
				if kind := frameType(f); kind == datasheet.FrameAck || kind == datasheet.FrameDisconnect && first {
					first = first && kind == datasheet.FrameAck
					return nil
				}
				return [][]byte{f}
			}
		},
		"everything twice":       func() func([]byte) [][]byte { return func(f []byte) [][]byte { return [][]byte{f, f} } },
		"disconnect comes first": func() func([]byte) [][]byte { return held(datasheet.FrameAck) },
	} {
		t.Run(name, func(t *testing.T) {
			reliably(t, func(t *testing.T, change func(*datasheet.CreateEndpointBody)) {
				for _, n := range []int{1, 16} {
					for _, size := range []int{0, 100, 5000} {
						w, v, p := pair(t, change)
						sent := underWay(v, p, n, n, size, spoil())
						disconnect(p)
						w.run("the sends", func() bool { return sent[n-1].Status().Done() })
						for i, s := range sent {
							if s.Status() != datasheet.StatusDone {
								t.Errorf("message %d of %d, of %d bytes: %v, but it was taken", i, n, size, s.Status())
							}
						}
					}
				}
			})
		})
	}
}

// TestPartlyTaken: of what the receiver has not taken when it disconnects, nothing
// is said to be done.
func TestPartlyTaken(t *testing.T) {
	for _, lose := range []datasheet.FrameType{0, datasheet.FrameAck} {
		reliably(t, func(t *testing.T, change func(*datasheet.CreateEndpointBody)) {
			w, v, p := pair(t, change)
			sent := underWay(v, p, 8, 3, 5000, losing{lose: true}.spoil)
			disconnect(p)
			if why := lostFor(t, w.a); why != datasheet.ResultSuccess {
				t.Errorf("the sender learns %v", why)
			}
			for i, s := range sent {
				want := datasheet.StatusDone
				if i >= 3 {
					want |= datasheet.StatusFlushed
				}
				if s.Status() != want {
					t.Errorf("message %d: %v, want %v", i, s.Status(), want)
				}
			}
		})
	}
}

// TestTakenWithHalfAMessage disconnects in the middle of a message that takes many
// frames.
func TestTakenWithHalfAMessage(t *testing.T) {
	w, v, p := pair(t, nil)
	whole, _ := p.descriptor(100)
	half, _ := p.descriptor(500_000)
	p.postRecv(whole, half)
	w.settle()
	first, _ := v.descriptor(100)
	second, _ := v.descriptor(500_000)
	v.postSend(first, second)
	w.run("the first message", func() bool { return whole.Status().Done() })
	w.a.e.Step()
	w.b.e.Step()
	if half.Status().Done() {
		t.Fatal("the second message is there already")
	}
	disconnect(p)
	if why := lostFor(t, w.a); why != datasheet.ResultSuccess {
		t.Errorf("the sender learns %v", why)
	}
	if first.Status() != datasheet.StatusDone || second.Status() != datasheet.StatusDone|datasheet.StatusFlushed {
		t.Errorf("the first %v, the second %v", first.Status(), second.Status())
	}
}

// TestEndOutlivesEndpoint: all that the peer says when it has taken the messages is lost,
// and then its endpoint is gone, or used for another connection. The sender learns what
// was taken, and that the peer has left in order.
func TestEndOutlivesEndpoint(t *testing.T) {
	for _, reused := range []bool{false, true} {
		t.Run(fmt.Sprintf("reused %v", reused), func(t *testing.T) {
			reliably(t, func(t *testing.T, change func(*datasheet.CreateEndpointBody)) {
				w, v, p := pair(t, change)
				sent := underWay(v, p, 2, 2, 100, losing{datasheet.FrameAck: true, datasheet.FrameDisconnect: true}.spoil)
				disconnect(p)
				w.settleOnly(w.b)
				if reused {
					connect(w.a.newVI(v.handle, change), p)
				} else {
					do(w.b, datasheet.OpDestroyEndpoint, datasheet.EndpointBody{Endpoint: p.id})
				}
				w.b.port.spoil = nil
				if why := lostFor(t, w.a); why != datasheet.ResultSuccess {
					t.Errorf("the sender learns %v", why)
				}
				for i, s := range sent {
					if s.Status() != datasheet.StatusDone {
						t.Errorf("message %d: %v, but it was taken", i, s.Status())
					}
				}
			})
		})
	}
}

// TestMoreTakenThanSent: a disconnect that says that messages were taken which were
// never sent, or taken before, is no disconnect.
func TestMoreTakenThanSent(t *testing.T) {
	for _, reason := range []datasheet.Result{datasheet.ResultSuccess, datasheet.ResultRemoteDescriptor, datasheet.ResultAborted} {
		for _, taken := range []uint32{1, 4, 5, 6, 1 << 31, ^uint32(0)} {
			t.Run(fmt.Sprintf("%v, %d", reason, taken), func(t *testing.T) {
				w, v, p := pair(t, nil)
				// Two messages are done, the third is under way and lost, and the
				// fourth has no credit.
				done := underWay(v, p, 2, 2, 100, nil)
				w.run("the sends", func() bool { return done[1].Status().Done() })
				r, _ := p.descriptor(100)
				p.postRecv(r)
				w.settle()
				w.a.port.spoil = losing{datasheet.FrameData: true}.spoil
				var sent []*descriptors.Descriptor
				for range 2 {
					s, _ := v.descriptor(100)
					sent = append(sent, s)
				}
				v.postSend(sent...)
				w.settle()
				w.b.port.spoil = func(f []byte) [][]byte {
					if h := datasheet.HeaderAt(f); h.Type == datasheet.FrameDisconnect {
						h.Message, h.Immediate = taken, uint32(reason)
					}
					return [][]byte{f}
				}
				disconnect(p)
				if why := lostFor(t, w.a); why != datasheet.ResultConnectionLost {
					t.Errorf("the sender learns %v", why)
				}
				for i, s := range sent {
					if !s.Status().Failed() {
						t.Errorf("message %d: %v, but it was not taken", 2+i, s.Status())
					}
				}
			})
		}
	}
}

// TestEchoIsNoDisconnect: who does not know a connection cannot say that it has
// ended in order, or what was taken.
func TestEchoIsNoDisconnect(t *testing.T) {
	w, v, _ := pair(t, nil)
	w.settle()
	w.b.e.Reset()
	w.b.port.spoil = func(f []byte) [][]byte {
		if h := datasheet.HeaderAt(f); h.Flags&datasheet.FrameEcho != 0 {
			h.Message, h.Immediate = 1, uint32(datasheet.ResultSuccess)
		}
		return [][]byte{f}
	}
	s, _ := v.descriptor(100)
	v.postSend(s)
	if why := lostFor(t, w.a); why != datasheet.ResultConnectionLost {
		t.Errorf("the sender learns %v", why)
	}
	if !s.Status().Failed() {
		t.Errorf("the send: %v", s.Status())
	}
}

// TestBrokenByASend: a send that fails by itself breaks a reliable connection, and
// neither side takes that for an orderly end.
func TestBrokenByASend(t *testing.T) {
	for _, bad := range spoiltSends {
		t.Run(bad.name, func(t *testing.T) {
			reliably(t, func(t *testing.T, change func(*datasheet.CreateEndpointBody)) {
				w, v, p := pair(t, change)
				back := underWay(p, v, 2, 1, 100, nil) // the second has no receive
				r, _ := p.descriptor(100)
				p.postRecv(r)
				w.settle()
				postSpoilt(t, v, bad)
				for _, n := range []*node{w.a, w.b} {
					if why := lostFor(t, n); why != datasheet.ResultDescriptor {
						t.Errorf("%v learns %v", n.e.MAC(), why)
					}
				}
				if r.Status()&datasheet.StatusErrorMask != datasheet.StatusFlushed {
					t.Errorf("the peer's receive: %v", r.Status())
				}
				if back[0].Status() != datasheet.StatusDone || !back[1].Status().Failed() {
					t.Errorf("the peer's sends: %v, %v", back[0].Status(), back[1].Status())
				}
			})
		})
	}
}

// TestBrokenByMemoryTakenAway: as TestBrokenByASend, if the memory of a message goes
// when all of it has been sent once, or in the middle.
func TestBrokenByMemoryTakenAway(t *testing.T) {
	for _, size := range []int{10, 500_000} {
		w, v, p := pair(t, nil)
		r, _ := p.descriptor(size)
		s, _ := v.descriptor(size)
		other := v.n.memory(0, 0)
		s.Segments()[0].Handle = other
		p.postRecv(r)
		w.settle()
		w.a.port.spoil = losing{datasheet.FrameData: true}.spoil
		v.postSend(s)
		w.settle()
		do(w.a, datasheet.OpDeregisterMemory, datasheet.MemoryBody{Handle: other})
		for _, n := range []*node{w.a, w.b} {
			if why := lostFor(t, n); why != datasheet.ResultDescriptor {
				t.Errorf("%d bytes: %v learns %v", size, n.e.MAC(), why)
			}
		}
		if s.Status()&datasheet.StatusErrorMask != datasheet.StatusProtectionError {
			t.Errorf("%d bytes: %v", size, s.Status())
		}
	}
}

// TestBrokenByAReceive: both sides learn that a receive has failed, and the sender
// that the messages before it were taken.
func TestBrokenByAReceive(t *testing.T) {
	reliably(t, func(t *testing.T, change func(*datasheet.CreateEndpointBody)) {
		w, v, p := pair(t, change)
		good, _ := p.descriptor(100)
		small, _ := p.descriptor(99)
		p.postRecv(good, small)
		w.settle()
		var sent []*descriptors.Descriptor
		for range 2 {
			s, _ := v.descriptor(100)
			sent = append(sent, s)
		}
		v.postSend(sent...)
		for _, n := range []*node{w.a, w.b} {
			if why := lostFor(t, n); why != datasheet.ResultRemoteDescriptor {
				t.Errorf("%v learns %v", n.e.MAC(), why)
			}
		}
		if sent[0].Status() != datasheet.StatusDone || sent[1].Status() != datasheet.StatusDone|datasheet.StatusRemoteDescriptor {
			t.Errorf("sends %v, %v", sent[0].Status(), sent[1].Status())
		}
	})
}

// TestDisconnectCutsMessagesOff: a side that disconnects before all that it has sent
// was taken does not leave in order, and the peer is told so, unless it has taken all
// of it and only the acknowledgement was missing.
func TestDisconnectCutsMessagesOff(t *testing.T) {
	for _, c := range []struct {
		name            string
		sends, receives int
		want            datasheet.Result
	}{
		{"all taken", 3, 3, datasheet.ResultSuccess},
		{"some without a receive", 3, 2, datasheet.ResultAborted},
	} {
		for _, heard := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, acknowledgements heard: %v", c.name, heard), func(t *testing.T) {
				reliably(t, func(t *testing.T, change func(*datasheet.CreateEndpointBody)) {
					w, v, p := pair(t, change)
					underWay(v, p, c.sends, c.receives, 100, losing{datasheet.FrameAck: !heard}.spoil)
					if heard {
						w.settle()
					}
					disconnect(v)
					if why := lostFor(t, w.b); why != c.want {
						t.Errorf("the peer learns %v, want %v", why, c.want)
					}
					if n := len(w.a.events); n != 0 {
						t.Errorf("who disconnects gets events %+v", w.a.events)
					}
				})
			})
		}
	}
}

// TestDisconnectOnAFullWire: a disconnect for which the wire has no room goes when
// it has.
func TestDisconnectOnAFullWire(t *testing.T) {
	w, v, p := pair(t, nil)
	sent := underWay(v, p, 4, 4, 100, nil)
	w.b.port.room = -1
	from := w.now
	disconnect(p)
	w.b.port.room = 1
	if why := lostFor(t, w.a); why != datasheet.ResultSuccess {
		t.Errorf("the sender learns %v", why)
	}
	if sent[3].Status() != datasheet.StatusDone {
		t.Errorf("the last send: %v", sent[3].Status())
	}
	if passed := w.now - from; passed > 100*time.Millisecond { // the probes would take longer to notice
		t.Errorf("the peer was told after %v, want as soon as there is room", passed)
	}
}
