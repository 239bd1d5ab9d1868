package cellmodel

import (
	"container/heap"

	"github.com/trapeze-nic/trapeze/lab/internal/profile"
)

// Orders of what is to be done at the same time: NICs decide when all the rest is.
const (
	happens = iota
	decides
)

// event is something that is to be done at a time.
type event struct {
	at     profile.Time
	order  int
	number int // in the order in which they were made
	do     func()
}

// events is a heap, the next one first.
type events struct {
	list []event
	made int
}

func (m *machine) at(t profile.Time, order int, do func()) {
	heap.Push(&m.events, event{t, order, m.events.made, do})
	m.events.made++
}

// run carries out what is to be done, until nothing is.
func (m *machine) run() {
	for len(m.events.list) > 0 {
		e := heap.Pop(&m.events).(event)
		m.now = e.at
		e.do()
	}
}

func (e *events) Len() int      { return len(e.list) }
func (e *events) Swap(i, j int) { e.list[i], e.list[j] = e.list[j], e.list[i] }
func (e *events) Push(x any)    { e.list = append(e.list, x.(event)) }

func (e *events) Less(i, j int) bool {
	a, b := &e.list[i], &e.list[j]
	if a.at != b.at {
		return a.at < b.at
	}
	if a.order != b.order {
		return a.order < b.order
	}
	return a.number < b.number
}

func (e *events) Pop() any {
	last := e.list[len(e.list)-1]
	e.list = e.list[:len(e.list)-1]
	return last
}
