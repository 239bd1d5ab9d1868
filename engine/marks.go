package engine

import (
	"math/bits"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/descriptors"
)

// groupWords is the number of 32-bit words that hold the group bytes of all marks.
const groupWords = descriptors.MarkCount / descriptors.MarksPerGroup / 4

// marks finds the doorbell pages in shared memory to which the host has stored
// (SPEC 3.4).
type marks struct {
	on     *uint32 // word in which the host says that it marks
	groups [groupWords]*uint32
	at     int // word to begin with
}

// clearMarks forgets all marks, and that the host marks.
func (d *doorbells) clearMarks() {
	for offset := uint64(descriptors.MarkGroups); offset <= descriptors.MarksOn; offset += 4 {
		atomic.StoreUint32(d.word(offset), 0)
	}
	for offset := uint64(descriptors.MarkBase); offset < descriptors.MarkBase+descriptors.MarkCount; offset += 4 {
		atomic.StoreUint32(d.word(offset), 0)
	}
}

// takeMarked looks at the pages that are marked, about scanSlice of them: a host
// that marks what it likes costs a step no more than that.
func (d *doorbells) takeMarked() bool {
	any, left := false, scanSlice
	for range d.marks.groups {
		if d.marks.at++; d.marks.at == groupWords {
			d.marks.at = 0
		}
		word := d.marks.groups[d.marks.at]
		for groups := atomic.LoadUint32(word); groups != 0; {
			k := bits.TrailingZeros32(groups) / 8
			mask := uint32(0xff) << (8 * k)
			// It is cleared before the marks are read: one that comes later sets it again.
			atomic.AndUint32(word, ^mask)
			groups &^= mask
			if any = d.takeGroup(4*d.marks.at+k, &left) || any; left <= 0 {
				return true
			}
		}
	}
	return any
}

// takeGroup looks at the marked pages of one group.
func (d *doorbells) takeGroup(group int, left *int) bool {
	any := false
	first := uint64(group) * descriptors.MarksPerGroup
	for i := uint64(0); i < descriptors.MarksPerGroup; i += 4 {
		marked := descriptors.TakeMarks(d.bar, descriptors.MarkBase+first+i)
		for marked != 0 {
			k := bits.TrailingZeros32(marked) / 8
			marked &^= 0xff << (8 * k)
			for page := first + i + uint64(k); page < uint64(len(d.cells)); page += descriptors.MarkCount {
				if p := d.cells[page].mapped; p != nil {
					any = d.look(p) || any
				}
				*left--
			}
		}
	}
	return any
}
