package driver

import (
	"cmp"
	"container/heap"
	"slices"
)

// ranges finds registrations by address. Ranges may overlap.
type ranges struct {
	sorted []*Memory // by first
	reach  []uint64  // the greatest end up to there
}

// after is the index of the first range that begins at address or behind.
func (r *ranges) after(address uint64) int {
	i, _ := slices.BinarySearchFunc(r.sorted, address, func(e *Memory, a uint64) int { return cmp.Compare(e.first, a) })
	return i
}

func (r *ranges) add(e *Memory) {
	i := r.after(e.first)
	r.sorted = slices.Insert(r.sorted, i, e)
	r.reach = append(r.reach, 0)
	r.measure(i)
}

func (r *ranges) remove(e *Memory) {
	i := r.after(e.first)
	for r.sorted[i] != e {
		i++
	}
	r.sorted = slices.Delete(r.sorted, i, i+1)
	r.reach = r.reach[:len(r.sorted)]
	r.measure(i)
}

// measure makes reach right from index i on.
func (r *ranges) measure(i int) {
	farthest := uint64(0)
	if i > 0 {
		farthest = r.reach[i-1]
	}
	for ; i < len(r.sorted); i++ {
		farthest = max(farthest, r.sorted[i].end)
		r.reach[i] = farthest
	}
}

// covering returns one that has all addresses from first to end, or nil.
func (r *ranges) covering(first, end uint64) *Memory {
	for i := r.after(first+1) - 1; i >= 0 && r.reach[i] >= end; i-- {
		if r.sorted[i].end >= end {
			return r.sorted[i]
		}
	}
	return nil
}

// overlapping returns all that share a page with the addresses from first to end.
func (r *ranges) overlapping(first, end uint64) (list []*Memory) {
	for i := r.after(end) - 1; i >= 0 && r.reach[i] > first; i-- {
		if r.sorted[i].end > first {
			list = append(list, r.sorted[i])
		}
	}
	return list
}

func (r *ranges) all() []*Memory { return slices.Clone(r.sorted) }

// byUse has the registrations by their last use, the oldest first. What was used since it
// was sorted in is sorted in again when it comes up.
type byUse []*Memory

func (h byUse) Len() int           { return len(h) }
func (h byUse) Less(i, j int) bool { return h[i].sorted < h[j].sorted }
func (h byUse) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *byUse) Push(x any)        { *h = append(*h, x.(*Memory)) }
func (h *byUse) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return e
}

func (h *byUse) push(e *Memory) { heap.Push(h, e) }

// pop takes out the one that was not used for longest.
func (h *byUse) pop() *Memory {
	for {
		e := (*h)[0]
		used := e.used.Load()
		if used == e.sorted {
			return heap.Pop(h).(*Memory)
		}
		e.sorted = used
		heap.Fix(h, 0)
	}
}

func (h *byUse) remove(e *Memory) {
	if i := slices.Index(*h, e); i >= 0 {
		heap.Remove(h, i)
	}
}
