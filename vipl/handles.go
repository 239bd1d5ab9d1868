package main

import (
	"sync"
	"sync/atomic"
)

// handle stands for an object in a C program: a kind, an index and a
// generation, so that one that is NULL, made up, of another kind or of an object that is
// gone is found out. It has never pointed anywhere.
type handle uintptr

const (
	kindNIC handle = iota + 1
	kindVI
	kindCQ
	kindPtag
	kindConnection

	kindBits  = 3
	indexBits = 24
)

// table finds the objects of one kind. Looking one up takes no lock.
type table[T any] struct {
	kind  handle
	slots atomic.Pointer[[]*slot[T]]

	mu   sync.Mutex // guards what follows, and who replaces slots
	free []int
}

type slot[T any] struct {
	entry      atomic.Pointer[entry[T]]
	generation handle // guarded by the table's mutex
}

type entry[T any] struct {
	name   handle
	object *T
}

// add gives an object a handle, and writes it to into before the object can be found.
// It returns zero, and has written nothing, if there are too many objects.
func (t *table[T]) add(object *T, into *handle) handle {
	t.mu.Lock()
	defer t.mu.Unlock()
	var slots []*slot[T]
	if p := t.slots.Load(); p != nil {
		slots = *p
	}
	var index int
	if n := len(t.free); n > 0 {
		index, t.free = t.free[n-1], t.free[:n-1]
	} else {
		if index = len(slots); index >= 1<<indexBits {
			return 0
		}
		// Readers keep the slice that they have; what both have of it is the same.
		slots = append(slots, &slot[T]{})
		t.slots.Store(&slots)
	}
	s := slots[index]
	s.generation++
	name := s.generation<<(indexBits+kindBits) | handle(index)<<kindBits | t.kind
	*into = name
	s.entry.Store(&entry[T]{name, object})
	return name
}

// find returns the object of a handle, nil if there is none.
func (t *table[T]) find(name handle) *T {
	p := t.slots.Load()
	if p == nil || name&(1<<kindBits-1) != t.kind {
		return nil
	}
	index := int(name >> kindBits & (1<<indexBits - 1))
	if index >= len(*p) {
		return nil
	}
	if e := (*p)[index].entry.Load(); e != nil && e.name == name {
		return e.object
	}
	return nil
}

// remove ends a handle. It returns false if another call has done so.
func (t *table[T]) remove(name handle) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.find(name) == nil {
		return false
	}
	index := int(name >> kindBits & (1<<indexBits - 1))
	(*t.slots.Load())[index].entry.Store(nil)
	t.free = append(t.free, index)
	return true
}

// The objects of this process.
var (
	nics        = table[nic]{kind: kindNIC}
	vis         = table[vi]{kind: kindVI}
	cqs         = table[cq]{kind: kindCQ}
	ptags       = table[ptag]{kind: kindPtag}
	connections = table[connection]{kind: kindConnection}
)
