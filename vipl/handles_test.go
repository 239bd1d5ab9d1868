package main

import (
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// TestHandles adds and removes objects in any order: a handle finds its own object as long
// as that is there, and nothing afterwards or in a table of another kind.
func TestHandles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type object struct{ number int }
		ours, others := table[object]{kind: kindVI}, table[object]{kind: kindCQ}
		there, gone := map[handle]*object{}, map[handle]bool{0: true}
		for i := range rapid.IntRange(1, 60).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "add") || len(there) == 0 {
				o := &object{i}
				h := ours.add(o, new(handle))
				if h == 0 || there[h] != nil || gone[h] {
					t.Fatalf("handle %#x again", h)
				}
				there[h] = o
			} else {
				h := rapid.SampledFrom(keys(there)).Draw(t, "which")
				if !ours.remove(h) || ours.remove(h) {
					t.Fatalf("%#x is not removed once", h)
				}
				delete(there, h)
				gone[h] = true
			}
			for h, o := range there {
				if ours.find(h) != o || others.find(h) != nil || ours.find(h^1) != nil || ours.find(h+1<<40) != nil {
					t.Fatalf("%#x does not find its object alone", h)
				}
			}
			for h := range gone {
				if ours.find(h) != nil {
					t.Fatalf("%#x is found", h)
				}
			}
		}
	})
}

func keys[T any](m map[handle]*T) (list []handle) {
	for h := range m {
		list = append(list, h)
	}
	return list
}

// TestMadeUpHandles: no number that is not a handle finds anything.
func TestMadeUpHandles(t *testing.T) {
	ours := table[int]{kind: kindNIC}
	number := 7
	real := ours.add(&number, new(handle))
	rapid.Check(t, func(t *rapid.T) {
		h := handle(rapid.Uint64().Draw(t, "handle"))
		if h != real && ours.find(h) != nil {
			t.Fatalf("%#x is found", h)
		}
		if h != real && ours.remove(h) {
			t.Fatalf("%#x is removed", h)
		}
	})
}

// TestHandlesAtOnce looks up while others add and remove, for the race detector.
func TestHandlesAtOnce(t *testing.T) {
	ours := table[int]{kind: kindNIC}
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for range 500 {
				h := ours.add(&i, new(handle))
				if got := ours.find(h); got != &i {
					t.Errorf("%#x finds another", h)
				}
				ours.remove(h)
			}
		})
	}
	all.Wait()
}
