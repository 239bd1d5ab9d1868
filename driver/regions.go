package driver

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// regionTable knows the registered memory by handle. Work queues look here
// before they accept a descriptor: afterwards the driver reads its status,
// which must not be memory that has been given back.
type regionTable struct {
	// generation changes when memory is deregistered or the device fails; spans of
	// an older one are worth nothing. Its lowest bits say why posts cannot be usual.
	generation atomic.Uint64
	// failed says why the device takes no posts any more, if so.
	failed func() error

	mu      sync.RWMutex
	m       map[uint32]*Memory
	retired EagerStats // of what is no longer in m
}

// These are the reasons, in the generation, why the calls of work queues look at more than the usual.
const (
	unusualEager   uint64 = 1 << iota // memory is eager, or was
	unusualForeign                    // memory is the program's own, or was: to read a descriptor there may panic
	unusualPump                       // a policy of the host moves the payloads
	unusual        = 1<<iota - 1
)

// forget makes all work queues look here again before they accept a descriptor.
func (t *regionTable) forget() { t.generation.Add(unusual + 1) }

// mark notes a reason why calls of work queues are not usual any more; unmark takes it back.
func (t *regionTable) mark(reason uint64) {
	if t.generation.Or(reason)&reason == 0 {
		t.forget()
	}
}

func (t *regionTable) unmark(reason uint64) {
	t.generation.And(^reason)
	t.forget()
}

// has reports whether there is one of the reasons.
func (t *regionTable) has(reasons uint64) bool { return t.generation.Load()&reasons != 0 }

// add reports false if the handle is in use.
func (t *regionTable) add(m *Memory) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.m[m.handle]; ok {
		return false
	}
	t.m[m.handle] = m
	return true
}

// remove reports false if m was removed before.
func (t *regionTable) remove(m *Memory) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m.gone.Load() {
		return false
	}
	m.gone.Store(true)
	t.retired.add(m.eager.Load().close())
	delete(t.m, m.handle)
	t.forget()
	return true
}

// restore undoes remove.
func (t *regionTable) restore(m *Memory) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m.gone.Store(false)
	if e := m.eager.Load(); e != nil {
		e.reopen()
	}
	t.m[m.handle] = m
}

// change gives m other attributes.
func (t *regionTable) change(m *Memory, a MemoryAttributes) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m.attributes = a
	t.forget()
}

// clear removes everything.
func (t *regionTable) clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range t.m {
		m.gone.Store(true)
		t.retired.add(m.eager.Load().close())
	}
	clear(t.m)
	t.forget()
}

// span is where descriptors of one region may start, as a work queue remembers
// it.
type span struct {
	generation  uint64 // of the table, plus one: zero for none
	first, last uint64
	handle      uint32
}

// spans is a work queue's memory of the regions that it saw last.
type spans [4]span

// covers reports whether find has found that a descriptor may lie at token t, and
// nothing has changed since. The table has this generation.
func (s *spans) covers(t datasheet.Token, generation uint64) bool {
	e := &s[t.Handle%uint32(len(s))]
	return e.handle == t.Handle && e.generation == generation+1 && t.Address >= e.first && t.Address <= e.last
}

// find returns nil if a descriptor of a VI with protection tag ptag may lie at
// token t.
func (s *spans) find(t datasheet.Token, table *regionTable, ptag *Ptag) error {
	table.mu.RLock()
	defer table.mu.RUnlock()
	// Before all else: if the device fails from here on, what is found out below is
	// of an older generation.
	generation := table.generation.Load()
	if err := table.failed(); err != nil {
		return err
	}
	m := table.m[t.Handle]
	switch {
	case m == nil, len(m.bytes) < datasheet.ControlSegmentSize, m.attributes.ReadOnly:
		return ErrBadHandle
	case m.attributes.Ptag != ptag:
		return descriptors.ErrInvalidPtag
	}
	last := m.address + uint64(len(m.bytes)-datasheet.ControlSegmentSize)
	if t.Address < m.address || t.Address > last {
		return ErrBadHandle
	}
	s[t.Handle%uint32(len(s))] = span{generation: generation + 1, first: m.address, last: last, handle: t.Handle}
	return nil
}

// handles lists the handles in use.
func (t *regionTable) handles() []uint32 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.Collect(maps.Keys(t.m))
}

func (t *regionTable) counted() EagerStats {
	t.mu.RLock()
	defer t.mu.RUnlock()
	s := t.retired
	for _, m := range t.m {
		s.add(m.eager.Load().counted())
	}
	return s
}

// keep counts what is of no memory that there is: the tokens of a VI that ends, and a registration
// that found no room on the device.
func (t *regionTable) keep(s EagerStats) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.retired.add(s)
}
