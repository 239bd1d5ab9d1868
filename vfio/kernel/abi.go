package kernel

import "structs"

// Numbers of ioctl requests (linux/vfio.h, linux/iommufd.h). None encodes a
// size. The same number means different things on a container, a group and a
// device.
const (
	requestBase = 0x3b << 8 // _IO(';', 0)

	vfioGetAPIVersion       = requestBase + 100
	vfioCheckExtension      = requestBase + 101
	vfioSetIOMMU            = requestBase + 102
	vfioGroupGetStatus      = requestBase + 103
	vfioGroupSetContainer   = requestBase + 104
	vfioGroupGetDeviceFD    = requestBase + 106
	vfioDeviceGetInfo       = requestBase + 107
	vfioDeviceGetRegionInfo = requestBase + 108
	vfioDeviceGetIRQInfo    = requestBase + 109
	vfioDeviceSetIRQs       = requestBase + 110
	vfioDeviceReset         = requestBase + 111
	vfioDeviceBindIOMMUFD   = requestBase + 118
	vfioDeviceAttachPT      = requestBase + 119

	vfioIOMMUGetInfo  = requestBase + 112
	vfioIOMMUMapDMA   = requestBase + 113
	vfioIOMMUUnmapDMA = requestBase + 114

	iommuDestroy        = requestBase + 0x80
	iommuIOASAlloc      = requestBase + 0x81
	iommuIOASIOVARanges = requestBase + 0x84
	iommuIOASMap        = requestBase + 0x85
	iommuIOASUnmap      = requestBase + 0x86
)

// Values of linux/vfio.h.
const (
	vfioAPIVersion = 0

	vfioType1v2IOMMU = 3
	vfioNoIOMMU      = 8

	groupViable       = 1
	groupContainerSet = 2

	deviceFlagReset = 1
	deviceFlagPCI   = 2

	regionFlagCaps      = 8
	regionCapSparseMmap = 1
	regionCapMSIX       = 3

	irqSetDataNone      = 1
	irqSetDataEventfd   = 4
	irqSetActionTrigger = 32

	iommuInfoPageSizes    = 1
	iommuInfoCaps         = 2
	iommuCapIOVARange     = 1
	iommuCapDMAAvailable  = 3
	dmaMapRead            = 1
	dmaMapWrite           = 2
	bindFlagToken         = 1
	ioasMapFixedIOVA      = 1
	ioasMapWriteable      = 2
	ioasMapReadable       = 4
	sizeOfBindWithoutUUID = 16
)

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

// Structures of linux/iommufd.h, see also abi_unsafe.go.

type destroy struct {
	_        structs.HostLayout
	size, id uint32
}

type ioasAlloc struct {
	_                 structs.HostLayout
	size, flags, ioas uint32
}

type ioasMap struct {
	_                    structs.HostLayout
	size, flags, ioas, _ uint32
	userVA, length, iova uint64
}

type ioasUnmap struct {
	_            structs.HostLayout
	size, ioas   uint32
	iova, length uint64
}
