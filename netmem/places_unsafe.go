package netmem

import (
	"sync/atomic"
	"unsafe"

	"github.com/trapeze-nic/trapeze/internal/atomicmem"
	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
)

// placeTable is a table of places in memory that clients read.
type placeTable [][protocol.PlaceSize / 8]uint64

// placesAt lays a table over as many whole places as b holds, from a boundary of 8 bytes on.
func placesAt(b []byte) placeTable {
	return unsafe.Slice((*[protocol.PlaceSize / 8]uint64)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/protocol.PlaceSize)
}

// store writes the place of a page. Its sequence goes on from the one in the table. What the caller has
// stored before is there by then, and what it stores after its next lock comes later.
func (t placeTable) store(page uint64, to *protocol.Place) {
	at := &t[page]
	to.Sequence = uint32(atomic.LoadUint64(&at[0])) | 1
	changing := to.Words()
	to.Sequence++
	words := to.Words()
	// Stores with release stay in this order.
	atomicmem.Store64(&at[0], changing[0])
	for i := 1; i < len(words); i++ {
		atomicmem.Store64(&at[i], words[i])
	}
	atomicmem.Store64(&at[0], words[0])
}
