package engine_test

import (
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// newIdle is a world in which each NIC has n VIs, all connected and with a receive
// posted, and nothing to do.
func newIdle(t testing.TB, n int, options ...option) *world {
	t.Helper()
	enough := func(c *engine.Config, _ *port) {
		c.Limits = engine.DefaultLimits()
		c.Limits.Endpoints = uint32(n) + 1
	}
	w := newWorld(t, append(options, enough)...)
	g, h := w.a.memory(0, 0), w.b.memory(0, 0)
	for range n {
		v, p := w.a.newVI(g, nil), w.b.newVI(h, nil)
		connect(v, p)
		r, _ := v.descriptor(64)
		v.postRecv(r)
	}
	w.settle()
	return w
}

// meter counts what an engine asks of its surroundings.
type meter struct {
	engine.Port
	*node
	looks, others, clocks int
}

func (m *meter) Receive() []byte { m.looks++; return m.Port.Receive() }
func (m *meter) Reserve(n int) []byte {
	m.others++
	return m.Port.Reserve(n)
}
func (m *meter) Flush() { m.others++; m.Port.Flush() }
func (m *meter) Window(iova, n uint64, write bool) ([]byte, error) {
	m.others++
	return m.node.Window(iova, n, write)
}

// TestIdleStep: whatever there was to do before, an idle step is one look at the wire,
// and seldom one at the clock.
func TestIdleStep(t *testing.T) {
	m := &meter{}
	w := newIdle(t, 300, memory(roomy), func(c *engine.Config, _ *port) {
		if m.Port != nil {
			return
		}
		m.Port, m.node = c.Port, c.Memory.(*node)
		c.Port, c.Memory = m, m
		clock := c.Clock
		c.Clock = func() time.Duration { m.clocks++; return clock() }
	})
	const steps = 1024
	m.looks, m.others, m.clocks = 0, 0, 0
	for range steps {
		must.Be(t, w.a.e.Step(), false, "there was something to do")
	}
	if m.looks != steps || m.others != 0 || m.clocks > steps/16 {
		t.Errorf("%d idle steps: %d looks at the wire, %d at the clock, %d at anything else", steps, m.looks, m.clocks, m.others)
	}
	should.Be(t, w.a.e.Quiet(), true, "an idle engine waits for a timer")
}

// TestPath: a post by a path is taken during the call, or by the next step if
// another goroutine is in the engine, in order with doorbells that are stored.
func TestPath(t *testing.T) {
	w := newWorld(t)
	v := w.a.newVI(w.a.memory(0, 0), nil)
	for _, bad := range []uint64{datasheet.EndpointPage(v.id) + 4, 1 << 40} {
		if w.a.e.Ringer(bad) != nil {
			t.Errorf("there is a doorbell at %#x", bad)
		}
	}
	ring := v.way().Post
	post := func(ring func(uint32)) *descriptors.Descriptor {
		d, _ := v.descriptor(10)
		v.send.tokens[v.send.producer] = d.Token()
		v.send.producer++
		ring(v.send.producer)
		return d
	}
	flushed := func(d *descriptors.Descriptor) bool {
		return d.Status() == datasheet.StatusDone|datasheet.StatusFlushed
	}
	// What is posted to a VI that is not connected ends, flushed, once the NIC knows of it.
	should.Be(t, flushed(post(ring)), true, "after the call")
	var d *descriptors.Descriptor
	w.a.e.Exclusive(func() { d = post(ring) })
	should.Be(t, d.Status(), 0, "the engine is somebody else's, and yet")
	if w.a.e.Step(); !flushed(d) {
		t.Errorf("after the next step: %v", d.Status())
	}
	w.a.e.Exclusive(func() { d = post(ring) })
	if last := post(ring); !flushed(d) || !flushed(last) {
		t.Errorf("a store that was not taken: %v, and the one after it: %v", d.Status(), last.Status())
	}
	w.a.e.Step()
	ring(v.send.producer + 1000)
	if n := w.a.e.Counter(datasheet.CounterBadDoorbells); n != 1 || len(w.a.events) != 1 {
		t.Errorf("%d bad doorbells, events %v: want one, of an index that cannot be", n, w.a.events)
	}
}

// TestPathsOfMany: of several goroutines that post while others step the engine, no
// post is lost.
func TestPathsOfMany(t *testing.T) {
	const vis, posts = 4, 2000
	w := newWorld(t, func(c *engine.Config, _ *port) { c.Memory.(*node).mem = mapped(t, memSize) })
	h := w.a.memory(0, 0)
	var all sync.WaitGroup
	for range vis {
		v := w.a.newVI(h, nil)
		ring := v.way().Post
		d, _ := v.descriptor(10)
		all.Go(func() {
			for i := range posts {
				d.Rearm()
				v.send.tokens[i%len(v.send.tokens)] = d.Token()
				ring(uint32(i + 1))
				for looks := 0; !d.Status().Done(); looks++ {
					if looks > 10_000_000 {
						t.Errorf("post %d is lost", i)
						return
					}
					w.a.e.Step()
				}
			}
		})
	}
	all.Wait()
	should.Be(t, w.a.e.Counter(datasheet.CounterBadDoorbells), 0, "bad doorbells")
}

// mapped is memory that is not the Go heap's, as what a device writes is: the race
// detector does not know the order in which descriptors change hands.
func mapped(t *testing.T, size int) []byte {
	mem := must.Get(unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS))(t)
	t.Cleanup(func() { _ = unix.Munmap(mem) })
	return mem
}
