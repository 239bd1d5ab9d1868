package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/wire"
)

// over is an option that puts the world on real wires.
func over(t testing.TB, ends ...engine.Port) option {
	i := 0
	return func(c *engine.Config, p *port) {
		c.Port = ends[i]
		i++
	}
}

func memoryWire(t testing.TB) (a, b *wire.Memory) {
	t.Helper()
	a, b = must.Two(wire.NewMemory(wire.MemoryOptions{}))(t)
	return a, b
}

// TestWhoNeedsNoAcknowledgements: only between the two ends of one wire that loses
// nothing, with nobody who may drop a frame, connections do without.
func TestWhoNeedsNoAcknowledgements(t *testing.T) {
	state := func(f func(number uint32) uint32) option {
		return func(_ *engine.Config, p *port) {
			p.spoil = func(frame []byte) [][]byte {
				h := datasheet.HeaderAt(frame)
				if h.Type == datasheet.FrameConnectRequest || h.Type == datasheet.FrameConnectAccept {
					b := datasheet.ConnectBodyAt(frame[datasheet.HeaderSize:])
					b.Wire = f(b.Wire)
				}
				return [][]byte{frame}
			}
		}
	}
	for name, tt := range map[string]struct {
		world func(t *testing.T) *world
		want  bool
	}{
		"two ends": {func(t *testing.T) *world { return newWorld(t, exactly(nil)) }, false},
		"memory": {func(t *testing.T) *world {
			a, b := memoryWire(t)
			return newWorld(t, over(t, a, b))
		}, false},
		"a wire that says nothing": {func(t *testing.T) *world { return newWorld(t) }, true},
		"where faults may be": {func(t *testing.T) *world {
			a, b := memoryWire(t)
			f, err := wire.NewFault(a, wire.FaultOptions{})
			g, err2 := wire.NewFault(b, wire.FaultOptions{})
			if err != nil || err2 != nil {
				t.Fatal(err, err2)
			}
			return newWorld(t, over(t, f, g))
		}, true},
		"a checksum": {func(t *testing.T) *world {
			return newWorld(t, func(_ *engine.Config, p *port) { p.checksum = true }, exactly(nil))
		}, true},
		"the peer states no number": {func(t *testing.T) *world {
			return newWorld(t, exactly(nil), state(func(uint32) uint32 { return 0 }))
		}, true},
		"the peer states another number": {func(t *testing.T) *world {
			return newWorld(t, exactly(nil), state(func(n uint32) uint32 { return n + 1 }))
		}, true},
		// Who forwards frames from one wire to another may lose them.
		"a relay between two wires": {func(t *testing.T) *world {
			a, x := memoryWire(t)
			y, b := memoryWire(t)
			forward := func(from, to *wire.Memory) {
				for f := from.Receive(); f != nil; f = from.Receive() {
					if q := to.Reserve(len(f)); q != nil {
						copy(q, f)
						to.Commit()
					}
					from.Release()
				}
				to.Flush()
			}
			w := newWorld(t, over(t, a, b))
			w.relay = func() { forward(x, y); forward(y, x) }
			return w
		}, true},
		"a filter": {func(t *testing.T) *world {
			w := newWorld(t, exactly(nil))
			w.b.e.Exclusive(func() {
				w.b.e.SetProcessor(passAll(t), engine.HookFilterReceive.Set(), 0)
			})
			return w
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := tt.world(t)
			v, p := w.a.newVI(w.a.memory(0, 0), nil), w.b.newVI(w.b.memory(0, 0), nil)
			connect(v, p)
			if acknowledges(t, v, p) != tt.want || acknowledges(t, p, v) != tt.want {
				t.Errorf("acknowledgements: want %v", tt.want)
			}
		})
	}
}

// passAll is a program that has a say in all frames, and lets them go.
func passAll(t testing.TB) *scripted {
	return &scripted{t: t, filter: func(_ engine.Direction, _ []byte, queue uint32) (engine.Action, uint32, bool) {
		return engine.FramePass, queue, true
	}}
}

// burst posts n receives, of which number bad is too short, and n sends of size bytes.
func burst(v, p *vi, n, bad, size int) (sends, receives []*descriptors.Descriptor) {
	for i := range n {
		s, _ := v.descriptor(size)
		room := size
		if i == bad {
			room = size - 1
		}
		r, _ := p.descriptor(room)
		sends, receives = append(sends, s), append(receives, r)
	}
	p.postRecv(receives...)
	v.n.w.settle() // the sender has credit for all
	v.postSend(sends...)
	return sends, receives
}

// TestWhichMessageWasRefused: a message that the peer cannot take ends as refused, those
// before it as delivered and those behind it as flushed, however many are under way,
// whether or not the peer can say so at once.
func TestWhichMessageWasRefused(t *testing.T) {
	for _, size := range []int{100, 1984, 1985, 9000} {
		for _, full := range []bool{false, true} {
			for n := 1; n <= 21; n += 5 {
				for bad := 0; bad < n; bad += 4 {
					name := fmt.Sprintf("%d bytes, %d of %d, full %v", size, bad, n, full)
					w, v, p, _ := exactPair(t, nil, smallMemory)
					sends, receives := burst(v, p, n, bad, size)
					if full {
						w.settleOnly(w.a)
						w.b.port.room = -1
						for range 500 {
							w.a.e.Step()
							w.b.e.Step()
							w.now += time.Millisecond
						}
						for i, s := range sends[bad:] {
							if s.Status().Done() && !s.Status().Failed() {
								t.Fatalf("%s: %d counts as delivered before the peer could tell", name, bad+i)
							}
						}
						w.b.port.room = 0
					}
					w.run("the end", func() bool { return sends[n-1].Status().Done() && receives[n-1].Status().Done() })
					for i, s := range sends {
						st, r := s.Status(), receives[i].Status()
						var want, wantReceive datasheet.Status
						switch {
						case i == bad:
							want, wantReceive = datasheet.StatusRemoteDescriptor, datasheet.StatusLengthError
						case i > bad:
							want, wantReceive = datasheet.StatusFlushed, datasheet.StatusFlushed
						}
						if st&^datasheet.StatusDone != want || r&^(datasheet.StatusDone|datasheet.StatusOpReceive) != wantReceive {
							t.Fatalf("%s: %d: %v, %v, want %v, %v", name, i, st, r, want, wantReceive)
						}
					}
				}
			}
		}
	}
}

// TestFilterLoadedLater: a program that is loaded once the connection is there, and drops
// a frame, ends it; nothing that it dropped counts as delivered.
func TestFilterLoadedLater(t *testing.T) {
	for name, hook := range map[string]engine.Hook{"transmit": engine.HookFilterTransmit, "receive": engine.HookFilterReceive} {
		t.Run(name, func(t *testing.T) {
			w, v, p, _ := exactPair(t, nil)
			n := w.a
			if hook == engine.HookFilterReceive {
				n = w.b
			}
			drop := passAll(t)
			n.e.Exclusive(func() { n.e.SetProcessor(drop, hook.Set(), 0) })
			mustArrive(t, v, p, 5, 1)
			drop.filter = func(engine.Direction, []byte, uint32) (engine.Action, uint32, bool) { return engine.FrameDrop, 0, true }
			s, _ := v.descriptor(100)
			r, _ := p.descriptor(100)
			p.postRecv(r)
			v.postSend(s)
			w.run("the end", func() bool { return s.Status().Done() })
			if !s.Status().Failed() || r.Status().Done() && !r.Status().Failed() {
				t.Errorf("%v, %v", s.Status(), r.Status())
			}
		})
	}
}

// TestFilterLoadedWhileConnecting: whatever is loaded between the two sides' decisions,
// they agree.
func TestFilterLoadedWhileConnecting(t *testing.T) {
	for server := range 2 {
		for steps := range 12 {
			w := newWorld(t, exactly(nil))
			v, p := w.a.newVI(w.a.memory(0, 0), nil), w.b.newVI(w.b.memory(0, 0), nil)
			wait := start(w.b, datasheet.OpConnectWait, datasheet.ConnectWaitBody{TimeoutMS: 10_000, Local: disc("test")})
			start(w.a, datasheet.OpConnectRequest, datasheet.ConnectRequestBody{Endpoint: v.id, TimeoutMS: 10_000,
				RemoteMAC: w.b.e.MAC, Remote: disc("test"), Local: disc("client")})
			r := w.b.wait(wait)
			c := datasheet.Reply[datasheet.ConnectionReply](&r).Connection
			id := start(w.b, datasheet.OpConnectAccept, datasheet.ConnectAcceptBody{Connection: c, Endpoint: p.id, TimeoutMS: 10_000})
			for i := range steps {
				[]*node{w.b, w.a}[i/2%2].e.Step()
				w.now += 30 * time.Millisecond
			}
			n := []*node{w.a, w.b}[server]
			n.e.Exclusive(func() { n.e.SetProcessor(passAll(t), engine.HookFilterReceive.Set(), 0) })
			must.Be(t, w.b.wait(id).Result, datasheet.ResultSuccess)
			for i := range 3 {
				mustArrive(t, v, p, 100, uint64(i))
				mustArrive(t, p, v, 100, uint64(i))
			}
			if n := w.a.e.Counter(datasheet.CounterFramesRetransmitted) + w.b.e.Counter(datasheet.CounterFramesRetransmitted); n != 0 {
				t.Errorf("server %d, %d steps: %d frames sent again", server, steps, n)
			}
		}
	}
}
