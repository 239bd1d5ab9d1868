// Package ranges keeps ranges of bus addresses that do not overlap, in order.
package ranges

import "slices"

// Range is a pointer to what is known of one range, so that a table of many is short. Last is the last address in it.
type Range interface {
	First() uint64
	Last() uint64
}

// Table holds ranges by address. It is for one goroutine at a time.
type Table[R Range] []R

// span returns which ranges first to last touch: those from one index up to another.
func (t Table[R]) span(first, last uint64) (from, to int) {
	from, _ = slices.BinarySearchFunc(t, first, func(r R, first uint64) int {
		if r.Last() < first {
			return -1
		}
		return 1
	})
	for to = from; to < len(t) && t[to].First() <= last; {
		to++
	}
	return from, to
}

// Within returns the ranges that first to last, both included, touch. They are valid until the table changes.
func (t Table[R]) Within(first, last uint64) []R {
	from, to := t.span(first, last)
	return t[from:to]
}

// Insert adds a range that touches no other.
func (t *Table[R]) Insert(r R) {
	at, _ := t.span(r.First(), r.First())
	*t = slices.Insert(*t, at, r)
}

// Remove removes the ranges that first to last touch.
func (t *Table[R]) Remove(first, last uint64) {
	from, to := t.span(first, last)
	*t = slices.Delete(*t, from, to)
}
