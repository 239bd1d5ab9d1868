package driver

import (
	"context"
	"fmt"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// PCIID names a kind of device in PCI config space.
type PCIID struct{ Vendor, Device uint16 }

func (i PCIID) String() string { return fmt.Sprintf("%04x:%04x", i.Vendor, i.Device) }

// Identity is a device's own description. Limits are those that hold:
// the device's own, or the formats' where a device claims more than they allow.
type Identity struct {
	PCI PCIID
	// DeviceVersion is major<<16 | minor<<8 | patch.
	DeviceVersion uint32
	// Features holds the Feature bits of package descriptors.
	Features uint64
	// MaxEndpoints counts endpoint 0, which is reserved.
	MaxEndpoints uint32
	MaxCQs       uint32
	MaxRegions   uint32
	MaxPtags     uint32
	// MaxQueueDepth is in descriptors, MaxCQEntries in entries, MaxSegments in
	// data segments of a descriptor.
	MaxQueueDepth int
	MaxCQEntries  int
	MaxSegments   int
	// MaxTransfer is the largest message, MTU the largest frame of the wire with
	// its header, SRAM the size of the device's memory; all in bytes.
	MaxTransfer uint32
	MTU         int
	SRAM        uint32
	MAC         datasheet.MAC
	// Vectors is the number of interrupt vectors that the driver uses.
	Vectors int
	// Blocks are the register blocks found in BAR0, in the order of the chain.
	Blocks []Block
}

// maxObjects bounds endpoints and completion queues, whatever a device claims.
const maxObjects = 1 << 16

// readIdentity reads the identity block. Doorbells is the size of BAR2, which
// must hold the doorbell pages of all the endpoints and CQs.
func readIdentity(r *registers, doorbells uint64) (Identity, error) {
	var id Identity
	var err error
	read := func(reg uint64) (v uint32) {
		if err == nil { // a device that has not answered once is not asked again
			v, err = r.read(context.Background(), datasheet.BlockIdentity, reg)
		}
		return v
	}
	magic := read(datasheet.RegMagic)
	id.DeviceVersion = read(datasheet.RegDeviceVersion)
	id.Features = uint64(read(datasheet.RegFeaturesLow)) | uint64(read(datasheet.RegFeaturesHigh))<<32
	id.MaxEndpoints = read(datasheet.RegMaxEndpoints)
	id.MaxCQs = read(datasheet.RegMaxCQs)
	id.MaxRegions = read(datasheet.RegMaxRegions)
	id.MaxPtags = read(datasheet.RegMaxPtags)
	queueLog2 := read(datasheet.RegMaxQueueLog2)
	cqLog2 := read(datasheet.RegMaxCQLog2)
	segments := read(datasheet.RegMaxSegments)
	id.MaxTransfer = min(read(datasheet.RegMaxTransfer), datasheet.MaxTransfer)
	mtu := read(datasheet.RegMTU)
	id.SRAM = read(datasheet.RegSRAMSize)
	low, high := read(datasheet.RegMACLow), read(datasheet.RegMACHigh)
	pageLog2 := read(datasheet.RegPageSizeLog2)
	if err != nil {
		return Identity{}, err
	}

	bad := func(what string, v, first, last uint32) error {
		return fmt.Errorf("%w: the identity block says %s is %d, it must be %d to %d", ErrBadRegisters, what, v, first, last)
	}
	switch {
	case magic == allOnes:
		return Identity{}, ErrDeviceGone
	case magic != datasheet.Magic:
		return Identity{}, fmt.Errorf("%w: the identity block starts with %#x, not %#x", ErrBadRegisters, magic, datasheet.Magic)
	case 1<<pageLog2 != datasheet.PageSize:
		return Identity{}, bad("log2 of the doorbell page size", pageLog2, 12, 12)
	case id.MaxEndpoints < 2 || id.MaxEndpoints > maxObjects:
		return Identity{}, bad("the number of endpoints", id.MaxEndpoints, 2, maxObjects)
	case id.MaxCQs > maxObjects:
		return Identity{}, bad("the number of completion queues", id.MaxCQs, 0, maxObjects)
	case queueLog2 < datasheet.MinQueueLog2 || queueLog2 > datasheet.MaxQueueLog2:
		return Identity{}, bad("log2 of the queue size", queueLog2, datasheet.MinQueueLog2, datasheet.MaxQueueLog2)
	case id.MaxCQs > 0 && (cqLog2 < datasheet.MinCQLog2 || cqLog2 > datasheet.MaxCQLog2):
		return Identity{}, bad("log2 of the completion queue size", cqLog2, datasheet.MinCQLog2, datasheet.MaxCQLog2)
	case mtu < datasheet.MinMTU || mtu > datasheet.MaxMTU:
		return Identity{}, bad("the MTU", mtu, datasheet.MinMTU, datasheet.MaxMTU)
	}
	if need := (uint64(id.MaxEndpoints) + uint64(id.MaxCQs)) * datasheet.PageSize; doorbells < need {
		return Identity{}, fmt.Errorf("%w: BAR2 has %#x bytes, the doorbells of %d endpoints and %d completion queues need %#x",
			ErrBadRegisters, doorbells, id.MaxEndpoints, id.MaxCQs, need)
	}
	id.MaxQueueDepth = 1 << queueLog2
	if id.MaxCQs > 0 {
		id.MaxCQEntries = 1 << cqLog2
	}
	id.MaxSegments = int(min(segments, datasheet.MaxSegments))
	id.MTU = int(mtu)
	id.MAC = datasheet.MAC{byte(low), byte(low >> 8), byte(low >> 16), byte(low >> 24), byte(high), byte(high >> 8)}
	return id, nil
}
