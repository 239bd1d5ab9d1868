package engine_test

import (
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/wire"
)

// sharedWire is a wire in shared memory whose two ends are here.
func sharedWire(t testing.TB) (a, b *wire.SHM) {
	t.Helper()
	var ends []*wire.SHM
	path := filepath.Join(t.TempDir(), "wire")
	for range 2 {
		p := must.Get(wire.NewSHM(t.Context(), wire.SHMOptions{Path: path, MTU: 2048, Ring: 1 << 16}))(t)
		t.Cleanup(func() {
			_ = p.Close()
			p.Reserve(0) // lets go of the memory
			p.Receive()
		})
		ends = append(ends, p)
	}
	waittest.Until(t, "the link is up", func() bool { return ends[0].LinkUp() && ends[1].LinkUp() })
	return ends[0], ends[1]
}

// realWires calls each with the two ends of every wire that loses nothing.
func realWires(t *testing.T, each func(t *testing.T, a, b wire.Port)) {
	t.Run("memory", func(t *testing.T) { a, b := memoryWire(t); each(t, a, b) })
	t.Run("shm", func(t *testing.T) { a, b := sharedWire(t); each(t, a, b) })
}

// until steps both NICs in real time.
func (w *world) until(what string, done func() bool) {
	w.t.Helper()
	for end := time.Now().Add(30 * time.Second); !done(); {
		w.a.e.Step()
		w.b.e.Step()
		must.Be(w.t, time.Now().After(end), false, "%s did not happen", what)
	}
}

func realTime(c *engine.Config, _ *port) { c.Clock = nil }

// TestPlugsWhileMessagesFly pulls plugs and puts them back while messages go both ways:
// each arrives once, in order.
func TestPlugsWhileMessagesFly(t *testing.T) {
	realWires(t, func(t *testing.T, a, b wire.Port) {
		w, v, p := pair(t, nil, memory(8<<20), over(t, a, b), realTime)
		stop := make(chan struct{})
		var pulling sync.WaitGroup
		pulling.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				end := []wire.Port{a, b}[i%2]
				end.SetLink(false)
				time.Sleep(time.Duration(i%7) * 100 * time.Microsecond)
				end.SetLink(true)
				time.Sleep(time.Duration(i%5) * 100 * time.Microsecond)
			}
		})
		defer func() { close(stop); pulling.Wait() }()
		ways := []*batch{{from: v, to: p}, {from: p, to: v}}
		n := soak.Count(500, 1500)
		size := func(i int) int { return 1 + i*53%4500 }
		done := func(ds []*descriptors.Descriptor, i int) bool { return i < 0 || ds[i].Status().Done() }
		for i := range n {
			for _, x := range ways {
				r, bufs := x.to.descriptor(size(i))
				s, out := x.from.descriptor(size(i))
				copy(out[0], pattern(size(i), uint64(i)))
				x.receives, x.sends, x.in, x.out = append(x.receives, r), append(x.sends, s), append(x.in, bufs[0]), append(x.out, out[0])
				x.to.postRecv(r)
				x.from.postSend(s)
			}
			for _, x := range ways {
				w.until("a message", func() bool { return done(x.sends, i-30) && done(x.receives, i-30) })
			}
		}
		for _, x := range ways {
			w.until("the last message", x.done)
			x.mustArrive()
		}
	})
}

// TestWireEnds: when the other end is closed, what was not known to have arrived fails,
// and nothing is sent well any more.
func TestWireEnds(t *testing.T) {
	realWires(t, func(t *testing.T, a, b wire.Port) {
		w, v, p := pair(t, nil, over(t, a, b), realTime)
		var sends []*descriptors.Descriptor
		r, _ := p.descriptor(100)
		p.postRecv(r)
		for range 2 {
			s, _ := v.descriptor(100)
			sends = append(sends, s)
		}
		w.until("credit", func() bool { w.a.e.Step(); return !w.b.e.Step() })
		v.postSend(sends[0])
		w.a.e.Step()
		must.OK(t, b.Close())
		w.until("the end", func() bool { return sends[0].Status().Done() && v.state() == datasheet.StateError })
		v.postSend(sends[1])
		w.until("the next end", func() bool { return sends[1].Status().Done() })
		if !r.Status().Done() && !sends[0].Status().Failed() || r.Status().Failed() && !sends[0].Status().Failed() || !sends[1].Status().Failed() {
			t.Errorf("%v, %v; received: %v", sends[0].Status(), sends[1].Status(), r.Status())
		}
	})
}
