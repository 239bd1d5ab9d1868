package kernel

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
