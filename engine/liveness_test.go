package engine_test

import (
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
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
			if state(left) != datasheet.StateConnected {
				t.Fatal("lost while the peer lived")
			}
			gone.n.port.spoil = func([]byte) [][]byte { return nil }
			from := w.now
			for state(left) == datasheet.StateConnected && w.now < from+time.Minute {
				w.pass(100*time.Millisecond, left.n) // nobody runs the other
				*gone.n.port.in = nil
				if tt.during != nil {
					tt.during(w, left)
				}
			}
			if d := w.now - from; state(left) != datasheet.StateError || d < 2*time.Second || d > 5*time.Second {
				t.Errorf("state %v after %v", state(left), d)
			}
			if r.Status()&datasheet.StatusErrorMask != datasheet.StatusFlushed {
				t.Errorf("the receive: %v", r.Status())
			}
			if e := left.n.events; len(e) != 1 || e[0].Code != datasheet.EventConnectionLost || e[0].Detail != uint32(datasheet.ResultConnectionLost) {
				t.Errorf("events %+v", e)
			}
			do(left.n, datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: left.id})
			do(left.n, datasheet.OpDestroyEndpoint, datasheet.EndpointBody{Endpoint: left.id})
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
			if n := e.n.e.Counter(datasheet.CounterFramesSent); state(e) != datasheet.StateConnected || n < 30 || n > 150 {
				t.Errorf("state %v, %d frames in a minute", state(e), n)
			}
		}
	})
	t.Run("bad wire", func(t *testing.T) {
		w, v, p := pair(t, unreliable, lossy(1, 0.3, 0.1, 0.1, 0))
		w.pass(time.Minute, w.a, w.b)
		if state(v) != datasheet.StateConnected || state(p) != datasheet.StateConnected {
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
				if b := datasheet.ConnectBodyAt(f[datasheet.HeaderSize:]); b != nil {
					b.Options = 0
				}
				return [][]byte{f}
			}
			left.n.port.spoil = func(f []byte) [][]byte {
				if datasheet.HeaderAt(f).Type == datasheet.FrameProbe {
					probes++
				}
				return [][]byte{f}
			}
			connect(v, p)
			w.settle()
			w.pass(time.Minute, left.n)
			if state(left) != datasheet.StateConnected || probes != 0 {
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
	w.run("the news", func() bool { return state(v) == datasheet.StateError })
	if d := w.now - from; d > 2*time.Second {
		t.Errorf("noticed after %v", d)
	}
}

// TestProbeOfAStranger: a probe with another key is no sign of life and gets no ack.
func TestProbeOfAStranger(t *testing.T) {
	x := newImpostor(t, unreliableVI)
	probe := func(change func(h *datasheet.Header)) datasheet.FrameType {
		b := alignedBytes(datasheet.HeaderSize)
		h := datasheet.HeaderAt(b)
		*h = x.good
		h.Type = datasheet.FrameProbe
		change(h)
		var answer datasheet.FrameType
		x.w.b.port.spoil = func(f []byte) [][]byte { answer = datasheet.HeaderAt(f).Type; return nil }
		x.arrive(b)
		return answer
	}
	if got := probe(func(*datasheet.Header) {}); got != datasheet.FrameAck {
		t.Errorf("the peer's probe is answered with %v", got)
	}
	for name, change := range map[string]func(h *datasheet.Header){
		"key":      func(h *datasheet.Header) { h.Key++ },
		"station":  func(h *datasheet.Header) { h.Source[5]++ },
		"endpoint": func(h *datasheet.Header) { h.SourceEndpoint++ },
	} {
		if got := probe(change); got != datasheet.FrameDisconnect {
			t.Errorf("another %s: %v", name, got)
		}
	}
	if state(x.p) != datasheet.StateConnected {
		t.Error(state(x.p))
	}
}
