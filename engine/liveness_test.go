package engine_test

import (
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
)

// pass lets d pass on a world, of whose NICs those run that are given.
func (w *world) pass(d time.Duration, running ...*node) {
	for end := w.now + d; w.now < end; w.now += time.Millisecond {
		for _, n := range running {
			n.e.Step()
		}
	}
}

// TestUnreliablePeerDies: an unreliable VI whose peer is gone ends, whatever it was
// doing.
func TestUnreliablePeerDies(t *testing.T) {
	for name, tt := range map[string]struct {
		client bool                     // it is the client that dies
		during func(w *world, left *vi) // every 100 ms
	}{
		"client while idle": {true, nil},
		"server while idle": {false, nil},
		"while sent to": {true, func(_ *world, left *vi) {
			d, _ := left.descriptor(5000)
			left.postSend(d)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w, left, gone := pair(t, unreliable)
			if tt.client {
				left, gone = gone, left
			}
			r, _ := left.descriptor(100)
			left.postRecv(r)
			w.pass(10*time.Second, w.a, w.b)
			if state(left) != descriptors.StateConnected {
				t.Fatal("lost while the peer lived")
			}
			gone.n.port.spoil = func([]byte) [][]byte { return nil }
			from := w.now
			for state(left) == descriptors.StateConnected && w.now < from+time.Minute {
				w.pass(100*time.Millisecond, left.n) // nobody runs the other
				*gone.n.port.in = nil
				if tt.during != nil {
					tt.during(w, left)
				}
			}
			if d := w.now - from; state(left) != descriptors.StateError || d < 2*time.Second || d > 5*time.Second {
				t.Errorf("state %v after %v", state(left), d)
			}
			if r.Status()&descriptors.StatusErrorMask != descriptors.StatusFlushed {
				t.Errorf("the receive: %v", r.Status())
			}
			if e := left.n.events; len(e) != 1 || e[0].Code != descriptors.EventConnectionLost || e[0].Detail != uint32(descriptors.ResultConnectionLost) {
				t.Errorf("events %+v", e)
			}
			do(left.n, descriptors.OpDisconnect, descriptors.EndpointBody{Endpoint: left.id})
			do(left.n, descriptors.OpDestroyEndpoint, descriptors.EndpointBody{Endpoint: left.id})
		})
	}
}

// TestIdleUnreliable: a peer that lives is not given up, over a wire that loses
// frames or while nobody runs either NIC, and to know that costs little.
func TestIdleUnreliable(t *testing.T) {
	t.Run("good wire", func(t *testing.T) {
		w, v, p := pair(t, unreliable)
		w.pass(time.Minute, w.a, w.b)
		for _, e := range []*vi{v, p} {
			if n := e.n.e.Counter(descriptors.CounterFramesSent); state(e) != descriptors.StateConnected || n < 30 || n > 150 {
				t.Errorf("state %v, %d frames in a minute", state(e), n)
			}
		}
	})
	t.Run("bad wire", func(t *testing.T) {
		w, v, p := pair(t, unreliable, lossy(1, 0.3, 0.1, 0.1, 0))
		w.pass(time.Minute, w.a, w.b)
		if state(v) != descriptors.StateConnected || state(p) != descriptors.StateConnected {
			t.Errorf("%v, %v", state(v), state(p))
		}
	})
	t.Run("absence", func(t *testing.T) {
		w, v, p := pair(t, unreliable)
		for range 5 {
			w.now += time.Minute
			w.pass(time.Second, w.a, w.b)
		}
		if sent, received, _ := message(v, p, []byte("still there")); sent.Failed() || received.Failed() {
			t.Errorf("%v, %v", sent, received)
		}
	})
}

// TestPeerWithoutProbes: a device that does not know probes on unreliable connections
// is not asked, and that nothing comes from it does not end the connection.
func TestPeerWithoutProbes(t *testing.T) {
	for _, side := range []string{"client", "server"} {
		t.Run(side, func(t *testing.T) {
			w := newWorld(t)
			v, p := w.a.newVI(w.a.memory(0, 0), unreliable), w.b.newVI(w.b.memory(0, 0), unreliable)
			old, left := w.a, p
			if side == "server" {
				old, left = w.b, v
			}
			probes := 0
			old.port.spoil = func(f []byte) [][]byte {
				if b := descriptors.ConnectBodyAt(f[descriptors.HeaderSize:]); b != nil {
					b.Options = 0
				}
				return [][]byte{f}
			}
			left.n.port.spoil = func(f []byte) [][]byte {
				if descriptors.HeaderAt(f).Type == descriptors.FrameProbe {
					probes++
				}
				return [][]byte{f}
			}
			connect(v, p)
			w.settle()
			w.pass(time.Minute, left.n)
			if state(left) != descriptors.StateConnected || probes != 0 {
				t.Errorf("state %v after %d probes", state(left), probes)
			}
		})
	}
}

// TestUnreliableReset: a NIC that was reset answers the question whether it lives, and
// the connection that it does not know any more ends.
func TestUnreliableReset(t *testing.T) {
	w, v, _ := pair(t, unreliable)
	w.b.e.Reset()
	from := w.now
	w.run("the news", func() bool { return state(v) == descriptors.StateError })
	if d := w.now - from; d > 2*time.Second {
		t.Errorf("noticed after %v", d)
	}
}

// TestProbeOfAStranger: a probe with another key is no sign of life and gets no ack.
func TestProbeOfAStranger(t *testing.T) {
	x := newImpostor(t, unreliableVI)
	probe := func(change func(h *descriptors.Header)) descriptors.FrameType {
		b := alignedBytes(descriptors.HeaderSize)
		h := descriptors.HeaderAt(b)
		*h = x.good
		h.Type = descriptors.FrameProbe
		change(h)
		var answer descriptors.FrameType
		x.w.b.port.spoil = func(f []byte) [][]byte { answer = descriptors.HeaderAt(f).Type; return nil }
		x.arrive(b)
		return answer
	}
	if got := probe(func(*descriptors.Header) {}); got != descriptors.FrameAck {
		t.Errorf("the peer's probe is answered with %v", got)
	}
	for name, change := range map[string]func(h *descriptors.Header){
		"key":      func(h *descriptors.Header) { h.Key++ },
		"station":  func(h *descriptors.Header) { h.Source[5]++ },
		"endpoint": func(h *descriptors.Header) { h.SourceEndpoint++ },
	} {
		if got := probe(change); got != descriptors.FrameDisconnect {
			t.Errorf("another %s: %v", name, got)
		}
	}
	if state(x.p) != descriptors.StateConnected {
		t.Error(state(x.p))
	}
}
