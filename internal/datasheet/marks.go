package datasheet

import "sync/atomic"

// A device whose doorbells are plain memory is not told when one is stored. With
// FeatureDoorbellMarks it need not look at every page to find out: the host marks
// the page (SPEC.md 3.4). Marks stand in the page of endpoint 0, behind the
// doorbells of channel 0, one byte each; a group byte says that there are marks among 64.
const (
	// MarkGroups is the offset in BAR2 of the group bytes; group g is about marks
	// 64g to 64g+63.
	MarkGroups = 0x400
	// MarkBase is the offset in BAR2 of the mark bytes.
	MarkBase = 0x800
	// MarkCount is the number of marks. Page p has mark p modulo MarkCount.
	MarkCount = 2048
	// MarksPerGroup is the number of marks of one group byte.
	MarksPerGroup = 64
)

// MarkOffsets returns the offsets in BAR2 of the mark of a page and of its group.
// Both are bytes; the host stores 1, first to the mark, then to the group.
func MarkOffsets(page uint64) (mark, group uint64) {
	i := page % MarkCount
	return MarkBase + i, MarkGroups + i/MarksPerGroup
}

// SetMarks marks a page in bar, the memory of BAR2, for a host that has the device
// store its doorbells. It does nothing if bar is too small.
func SetMarks(bar []byte, page uint64) {
	mark, group := MarkOffsets(page)
	for _, at := range [...]uint64{mark, group} {
		if word := markWord(bar, at); word != nil {
			atomic.OrUint32(word, 1<<(8*(at%4)))
		}
	}
}

// TakeMarks takes four of the bytes at offset, a multiple of 4: those that were
// not zero are, in the order of their offsets, bits 0, 8, 16 and 24 of the result,
// if stored as the host should. They are zero then. What was stored before a mark
// can be seen after TakeMarks has returned it.
func TakeMarks(bar []byte, offset uint64) uint32 {
	word := markWord(bar, offset)
	if word == nil || atomic.LoadUint32(word) == 0 {
		return 0
	}
	return atomic.SwapUint32(word, 0)
}

// markWord is the word that holds the byte at offset.
func markWord(bar []byte, offset uint64) *uint32 {
	if offset &^= 3; offset+4 > uint64(len(bar)) {
		return nil
	}
	return IndexAt(bar[offset:])
}
