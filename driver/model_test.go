package driver_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// modelQueue is what one side of a VI is, said simply.
type modelQueue struct {
	depth     int
	posted    []*descriptors.Descriptor // not taken back
	number    uint32                    // of the next token
	completed int                       // of the posted, from the first on
}

// modelEntry is a completion that the CQ owes.
type modelEntry struct {
	v       int
	receive bool
	index   uint32
}

type model struct {
	r        *rig
	vis      [2]*driver.VI
	q        map[[2]int]*modelQueue // by VI and side
	expected []modelEntry
	// Slots of memory that hold no posted descriptor.
	free []*descriptors.Descriptor
}

const (
	modelSend, modelRecv = 3, 4
	modelDescriptors     = 2 * (modelSend + modelRecv)
)

func newModel(t *testing.T) *model {
	m := &model{r: &rig{d: newFake(t)}, q: map[[2]int]*modelQueue{}}
	m.r.n = must.Get(driver.New(t.Context(), m.r.d, driver.Options{Logger: quiet}))(t)
	m.r.m = must.Get(m.r.n.Alloc(t.Context(), 16384, driver.MemoryAttributes{}))(t)
	m.r.sendCQ = must.Get(m.r.n.CreateCQ(t.Context(), modelDescriptors))(t)
	m.free = m.r.descriptors(t, modelDescriptors+1)
	for i := range m.vis {
		must.OK(t, m.create(t, i))
	}
	return m
}

func (m *model) create(t *testing.T, i int) (err error) {
	m.vis[i], err = m.r.n.CreateVI(t.Context(), driver.VIAttributes{Reliability: datasheet.Unreliable, MaxTransfer: 64, SendDepth: modelSend, RecvDepth: modelRecv}, m.r.sendCQ, m.r.sendCQ)
	m.q[[2]int{i, 0}] = &modelQueue{depth: modelSend}
	m.q[[2]int{i, 1}] = &modelQueue{depth: modelRecv}
	return err
}

func (m *model) pick(t *rapid.T) (v int, receive bool, q *modelQueue) {
	v, receive = rapid.IntRange(0, 1).Draw(t, "VI"), rapid.Bool().Draw(t, "receive")
	side := 0
	if receive {
		side = 1
	}
	return v, receive, m.q[[2]int{v, side}]
}

func (m *model) post(t *rapid.T) {
	v, receive, q := m.pick(t)
	if len(m.free) == 0 {
		t.Skip("no descriptor is free")
	}
	d := m.free[0]
	d.Rearm()
	do := m.vis[v].PostSend
	if receive {
		do = m.vis[v].PostRecv
	}
	err := do(d)
	if len(q.posted) >= q.depth {
		if err != descriptors.ErrQueueFull {
			t.Fatalf("posted to a full queue: %v", err)
		}
		return
	}
	must.OK(t, err)
	m.free = m.free[1:]
	q.posted = append(q.posted, d)
	q.number++
}

// complete is the device completing the oldest of a queue.
func (m *model) complete(t *rapid.T) {
	v, receive, q := m.pick(t)
	if q.completed == len(q.posted) {
		t.Skip("nothing is outstanding")
	}
	index := q.number - uint32(len(q.posted)-q.completed)
	m.r.v = m.vis[v]
	m.r.completion(m.r.sendCQ, receive, index)
	q.completed++
	m.expected = append(m.expected, modelEntry{v, receive, index})
}

func (m *model) takeCompletion(t *rapid.T) {
	// A completion whose descriptor was taken back is not given out.
	m.expected = slices.DeleteFunc(m.expected, func(e modelEntry) bool {
		q := m.queue(e)
		return e.index < q.number-uint32(len(q.posted))
	})
	e, err := m.r.sendCQ.Done()
	if len(m.expected) == 0 {
		if err != descriptors.ErrNotDone {
			t.Fatalf("%+v, %v from an empty CQ", e, err)
		}
		return
	}
	want := m.expected[0]
	m.expected = m.expected[1:]
	if err != nil || e.VI != m.vis[want.v] || e.Index != want.index || (e.Queue == driver.RecvQueue) != want.receive {
		t.Fatalf("%+v, %v, want %+v", e, err, want)
	}
}

func (m *model) queue(e modelEntry) *modelQueue {
	if e.receive {
		return m.q[[2]int{e.v, 1}]
	}
	return m.q[[2]int{e.v, 0}]
}

func (m *model) takeDescriptor(t *rapid.T) {
	v, receive, q := m.pick(t)
	do := m.vis[v].SendDone
	if receive {
		do = m.vis[v].RecvDone
	}
	d, err := do()
	switch {
	case len(q.posted) == 0:
		if err != descriptors.ErrQueueEmpty {
			t.Fatalf("%v from an empty queue", err)
		}
	case q.completed == 0:
		if err != descriptors.ErrNotDone {
			t.Fatalf("%v, and nothing has completed", err)
		}
	default:
		if err != nil || d != q.posted[0] {
			t.Fatalf("%v, or not the oldest descriptor", err)
		}
		q.posted, q.completed = q.posted[1:], q.completed-1
		m.free = append(m.free, d)
	}
}

func (m *model) check(t *rapid.T) {
	for i, v := range m.vis {
		send, recv := v.Queued()
		if send != len(m.q[[2]int{i, 0}].posted) || recv != len(m.q[[2]int{i, 1}].posted) {
			t.Fatalf("VI %d has %d and %d queued", i, send, recv)
		}
	}
}

// TestQueueModel compares two VIs that share a CQ with a model of them, under
// random sequences of operations, VIs that are destroyed and created among them.
func TestQueueModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := newModel(t)
		defer func() {
			should.OK(rt, m.r.n.Close())
		}()
		rt.Repeat(map[string]func(*rapid.T){
			"post": m.post, "complete": m.complete, "take completion": m.takeCompletion, "take descriptor": m.takeDescriptor,
			"destroy and create": func(rt *rapid.T) {
				i := rapid.IntRange(0, 1).Draw(rt, "VI")
				must.OK(rt, m.vis[i].Abandon(t.Context()))
				for side := range 2 {
					m.free = append(m.free, m.q[[2]int{i, side}].posted...)
				}
				var expected []modelEntry
				for _, e := range m.expected {
					if e.v != i {
						expected = append(expected, e)
					}
				}
				m.expected = expected
				must.OK(rt, m.create(t, i))
			},
			"": m.check,
		})
	})
}
