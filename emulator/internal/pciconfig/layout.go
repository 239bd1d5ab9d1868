package pciconfig

// Registers of the type 0 header, beyond those of package vfio.
const (
	vendorID       = 0x00
	deviceID       = 0x02
	classRevision  = 0x08
	cacheLineSize  = 0x0c
	bar0           = 0x10
	subsystemVID   = 0x2c
	subsystemID    = 0x2e
	capPointer     = 0x34
	interruptLine  = 0x3c
	statusCapList  = 0x0010
	statusRW1C     = 0xf900 // parity and abort bits, signalled and received
	barMemory64    = 0x4
	barPrefetch    = 0x8
	barAddressMask = ^uint64(0xf)

	commandParity = 0x0040
	commandSERR   = 0x0100
)

// Where this function has its capabilities: each after the one before, at a
// multiple of 16 so that a dump is easy to read.
const (
	powerCap   = 0x40
	expressCap = 0x50
	msixCap    = 0x90
	serialCap  = 0x100 // extended capabilities start here
)

// Power management capability.
const (
	pmCapability  = 0x02
	pmControl     = 0x04
	pmVersion12   = 0x0003
	pmStateMask   = 0x0003
	pmNoSoftReset = 0x0008 // going from D3hot to D0 keeps state
)

// PCI Express capability.
const (
	expFlags         = 0x02
	expVersion2      = 0x0002 // version 2, device type 0: endpoint
	expDeviceCaps    = 0x04
	expDeviceControl = 0x08
	expDeviceStatus  = 0x0a
	expLinkCaps      = 0x0c
	expLinkControl   = 0x10
	expLinkStatus    = 0x12
	expDeviceCaps2   = 0x24
	expDevControl2   = 0x28
	expLinkCaps2     = 0x2c
	expLinkControl2  = 0x30

	deviceCapsPayload256  = 0x00000001
	deviceCapsExtTag      = 0x00000020
	deviceCapsRoleErrors  = 0x00008000 // required since PCI Express 1.1
	deviceCapsFLR         = 0x10000000
	deviceControlDefault  = 0x2810 // no snoop, relaxed order, reads of 512 bytes
	deviceControlWritable = 0x79ff // all but power bits, phantom functions and FLR
	deviceControlFLR      = 0x8000
	deviceStatusRW1C      = 0x000f

	linkSpeed8GT           = 0x3
	linkWidth8             = 8 << 4
	linkCapsASPMOptional   = 1 << 22 // required since PCI Express 3.0
	linkControlWritable    = 0x00c8  // read completion boundary, common clock, extended sync
	linkSpeedsTo8GT        = 0x0e    // 2.5, 5 and 8 GT/s
	deviceCaps2NoTimeout   = 0x10
	devControl2NoTimeout   = 0x0010
	linkControl2SpeedField = 0x000f
)

// MSI-X capability.
const (
	msixControl      = 0x02
	msixTable        = 0x04
	msixPBA          = 0x08
	msixEnable       = 0x8000
	msixFunctionMask = 0x4000
)

// extSerial is the header of the device serial number capability (PCIe base specification, 7.9.3): version 1, last in
// the list.
const extSerial uint32 = 0x0003 | 1<<16
