package datasheet

import (
	"structs"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/internal/atomicmem"
)

// Sizes of the table in which a device tells its peer what the peer may carry out by itself
// (SPEC.md 8.15).
const (
	// DirectEndpoints is the number of endpoints that have a word in the table, from 0 on.
	DirectEndpoints = 4096
	// DirectRegions is the number of regions that have an entry, at the index in their handles.
	DirectRegions = 4096
	// DirectRegionSize is the size in bytes of a DirectRegion.
	DirectRegionSize = 64
	// DirectEndpointsOffset and DirectRegionsOffset are where both begin, in bytes.
	DirectEndpointsOffset = PageSize
	DirectRegionsOffset   = DirectEndpointsOffset + 8*DirectEndpoints
	// DirectTableSize is the size of the table in bytes.
	DirectTableSize = DirectRegionsOffset + DirectRegionSize*DirectRegions
)

// DirectRegion tells a peer of a region to which it may copy, or from which. It is
// little-endian.
type DirectRegion struct {
	_ structs.HostLayout
	// Handle of the region; zero: the entry says nothing.
	Handle uint32
	// Access has the region's rights.
	Access Access
	// Ptag is its protection tag.
	Ptag uint32
	// Memory is the number that the wire has given to the memory which it lies in.
	Memory uint32
	// Address is the application address of its first byte.
	Address uint64
	// Length in bytes.
	Length uint64
	// Offset of its first byte in the memory, in bytes.
	Offset   uint64
	Reserved [24]byte
}

// DirectTable is the table. The device alone writes it.
type DirectTable struct {
	// Wire is the number of the wire whose peer may carry out operations, zero for none.
	Wire      uint32
	_         [DirectEndpointsOffset - 4]byte
	Endpoints [DirectEndpoints]uint64
	Regions   [DirectRegions]DirectRegion
}

// DirectEndpoint is the word of an endpoint that is connected, and lets its peer carry out
// operations: the key that it has drawn, and its protection tag.
func DirectEndpoint(key, ptag uint32) uint64 { return uint64(key)<<32 | uint64(ptag) }

// Load copies the entry at r into to, if it is that of the region with a handle, which is
// not zero.
func (r *DirectRegion) Load(handle uint32, to *DirectRegion) bool {
	// Acquiring loads stay in this order.
	if atomic.LoadUint32(&r.Handle) != handle {
		return false
	}
	to.Handle, to.Access = handle, Access(atomic.LoadUint32((*uint32)(&r.Access)))
	to.Ptag, to.Memory = atomic.LoadUint32(&r.Ptag), atomic.LoadUint32(&r.Memory)
	to.Address, to.Length, to.Offset = atomic.LoadUint64(&r.Address), atomic.LoadUint64(&r.Length), atomic.LoadUint64(&r.Offset)
	return true
}

// Store writes the entry of from to r, which says nothing.
func (r *DirectRegion) Store(from *DirectRegion) {
	atomicmem.Store32((*uint32)(&r.Access), uint32(from.Access))
	atomicmem.Store32(&r.Ptag, from.Ptag)
	atomicmem.Store32(&r.Memory, from.Memory)
	atomicmem.Store64(&r.Address, from.Address)
	atomicmem.Store64(&r.Length, from.Length)
	atomicmem.Store64(&r.Offset, from.Offset)
	atomicmem.Store32(&r.Handle, from.Handle)
}

// Clear makes the entry say nothing, before anything that the caller loads from then on.
func (r *DirectRegion) Clear() { atomic.StoreUint32(&r.Handle, 0) }
