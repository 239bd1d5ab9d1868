package dmaspace

import "slices"

// entry is one range.
type entry struct {
	Range
	window []byte
	file   *file // nil if there is no memory
}

// chunkSize is the largest number of entries of a chunk: inserting moves a few
// KiB then.
const chunkSize = 256

// rangeList holds ranges that do not overlap, by address, in chunks that are not
// empty. Operations take time in proportion to the root of the number of ranges
// and to the number of ranges that they return.
type rangeList struct {
	chunks [][]entry
	n      int
}

// place is where an entry is or would be.
type place struct{ chunk, index int }

// find returns the first range that ends at address or later, and its place; nil
// and the end if there is none.
func (l *rangeList) find(address uint64) (place, *entry) {
	c, _ := slices.BinarySearchFunc(l.chunks, address, func(chunk []entry, address uint64) int {
		return endsBefore(&chunk[len(chunk)-1], address)
	})
	if c == len(l.chunks) {
		return place{chunk: c}, nil
	}
	i, _ := slices.BinarySearchFunc(l.chunks[c], address, func(e entry, address uint64) int {
		return endsBefore(&e, address)
	})
	return place{c, i}, &l.chunks[c][i]
}

// endsBefore orders for a search that is never met exactly.
func endsBefore(e *entry, address uint64) int {
	if e.last() < address {
		return -1
	}
	return 1
}

// insert puts e at the place that find has returned for its address.
func (l *rangeList) insert(at place, e entry) {
	l.n++
	if at.chunk == len(l.chunks) {
		// Behind the last range: into the last chunk.
		if at.chunk == 0 {
			l.chunks = append(l.chunks, []entry{e})
			return
		}
		at.chunk--
		at.index = len(l.chunks[at.chunk])
	}
	chunk := slices.Insert(l.chunks[at.chunk], at.index, e)
	l.chunks[at.chunk] = chunk
	if len(chunk) > chunkSize {
		half := len(chunk) / 2
		l.chunks = slices.Insert(l.chunks, at.chunk+1, slices.Clone(chunk[half:]))
		clear(chunk[half:])
		l.chunks[at.chunk] = chunk[:half]
	}
}

// each calls f for the ranges that first to last touch, in order.
func (l *rangeList) each(first, last uint64, f func(e *entry)) {
	at, _ := l.find(first)
	for ; at.chunk < len(l.chunks); at.chunk, at.index = at.chunk+1, 0 {
		chunk := l.chunks[at.chunk]
		for i := at.index; i < len(chunk); i++ {
			if chunk[i].Address > last {
				return
			}
			f(&chunk[i])
		}
	}
}

// remove removes the ranges that first to last touch.
func (l *rangeList) remove(first, last uint64) {
	at, _ := l.find(first)
	from := at.chunk
	for ; at.chunk < len(l.chunks); at.chunk, at.index = at.chunk+1, 0 {
		chunk := l.chunks[at.chunk]
		end := at.index
		for end < len(chunk) && chunk[end].Address <= last {
			end++
		}
		l.n -= end - at.index
		l.chunks[at.chunk] = slices.Delete(chunk, at.index, end)
		if end < len(chunk) {
			break
		}
	}
	to := min(at.chunk+1, len(l.chunks))
	kept := slices.DeleteFunc(l.chunks[from:to], func(chunk []entry) bool { return len(chunk) == 0 })
	l.chunks = slices.Delete(l.chunks, from+len(kept), to)
}
