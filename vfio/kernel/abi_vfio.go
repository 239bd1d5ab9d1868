package kernel

import "structs"

// Structures of linux/vfio.h. Layout is checked against the kernel's header by
// TestABI.

type groupStatus struct {
	_            structs.HostLayout
	argsz, flags uint32
}

type deviceInfo struct {
	_                   structs.HostLayout
	argsz, flags        uint32
	numRegions, numIRQs uint32
	capOffset           uint32
}

type regionInfo struct {
	_                structs.HostLayout
	argsz, flags     uint32
	index, capOffset uint32
	size, offset     uint64
}

// capHeader begins each capability that the kernel appends to a structure.
// next counts from the start of that structure.
type capHeader struct {
	_           structs.HostLayout
	id, version uint16
	next        uint32
}

type irqInfo struct {
	_            structs.HostLayout
	argsz, flags uint32
	index, count uint32
}

// irqSet is followed by what its data type says.
type irqSet struct {
	_                   structs.HostLayout
	argsz, flags, index uint32
	start, count        uint32
}

type iommuInfo struct {
	_            structs.HostLayout
	argsz, flags uint32
	pageSizes    uint64
	capOffset    uint32
	_            uint32
}

// iovaRange has both ends included. It is the same in vfio.h and iommufd.h.
type iovaRange struct {
	_           structs.HostLayout
	start, last uint64
}

type dmaMap struct {
	_                 structs.HostLayout
	argsz, flags      uint32
	vaddr, iova, size uint64
}

type dmaUnmap struct {
	_            structs.HostLayout
	argsz, flags uint32
	iova, size   uint64
}

type attachPT struct {
	_                   structs.HostLayout
	argsz, flags, pageT uint32
}
