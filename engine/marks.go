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

func (e *Engine) newMarks() (m marks) {
	m.on = e.doorbellAt(descriptors.MarksOn)
	for i := range m.groups {
		m.groups[i] = e.doorbellAt(descriptors.MarkGroups + 4*uint64(i))
	}
	return m
}

// clearMarks forgets all marks, and that the host marks.
func (e *Engine) clearMarks() {
	for offset := uint64(descriptors.MarkGroups); offset <= descriptors.MarksOn; offset += 4 {
		atomic.StoreUint32(e.doorbellAt(offset), 0)
	}
	for offset := uint64(descriptors.MarkBase); offset < descriptors.MarkBase+descriptors.MarkCount; offset += 4 {
		atomic.StoreUint32(e.doorbellAt(offset), 0)
	}
}

// takeMarked looks at the pages that are marked, about scanSlice of them: a host
// that marks what it likes costs a step no more than that.
func (e *Engine) takeMarked() bool {
	any, left := false, scanSlice
	for range e.marks.groups {
		if e.marks.at++; e.marks.at == groupWords {
			e.marks.at = 0
		}
		word := e.marks.groups[e.marks.at]
		for groups := atomic.LoadUint32(word); groups != 0; {
			k := bits.TrailingZeros32(groups) / 8
			mask := uint32(0xff) << (8 * k)
			// Before the marks are read: one that comes later sets it again.
			atomic.AndUint32(word, ^mask)
			groups &^= mask
			if any = e.takeGroup(4*e.marks.at+k, &left) || any; left <= 0 {
				return true
			}
		}
	}
	return any
}

// takeGroup looks at the marked pages of one group.
func (e *Engine) takeGroup(group int, left *int) bool {
	any := false
	first := uint64(group) * descriptors.MarksPerGroup
	for i := uint64(0); i < descriptors.MarksPerGroup; i += 4 {
		marked := descriptors.TakeMarks(e.bar, descriptors.MarkBase+first+i)
		for marked != 0 {
			k := bits.TrailingZeros32(marked) / 8
			marked &^= 0xff << (8 * k)
			for page := first + i + uint64(k); page < uint64(e.limits.Endpoints+e.limits.CQs); page += descriptors.MarkCount {
				any = e.takePage(uint32(page)) || any
				*left--
			}
		}
	}
	return any
}

// takePage looks at one doorbell page, if its owner exists.
func (e *Engine) takePage(page uint32) bool {
	if page < e.limits.Endpoints {
		ep := e.endpoints[page]
		return ep != nil && ep.bell != nil && ep.scan(e)
	}
	cq := e.cqs.queues[page-e.limits.Endpoints]
	return cq != nil && cq.bell != nil && cq.scan(e)
}
