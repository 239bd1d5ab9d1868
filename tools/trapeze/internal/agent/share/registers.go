package share

import (
	"math/bits"

	"github.com/trapeze-nic/trapeze/descriptors"
)

// features are those of a device that its parts have too: none that needs device memory, programs, or frames that are
// not Trapeze's. A part's doorbells are memory.
const features = descriptors.FeatureReliableDelivery | descriptors.FeatureReliableReception | descriptors.FeatureRDMAWrite |
	descriptors.FeatureRDMARead | descriptors.FeatureInline | descriptors.FeatureReceiveQueue

// blocks are the register blocks of a part, in the order of the chain.
var blocks = [...]struct{ kind, offset, size uint32 }{
	{descriptors.BlockIdentity, descriptors.IdentityOffset, descriptors.IdentitySize},
	{descriptors.BlockHealth, descriptors.HealthOffset, descriptors.HealthSize},
	{descriptors.BlockAdmin, descriptors.AdminOffset, descriptors.AdminSize},
	{descriptors.BlockInterrupt, descriptors.InterruptOffset, descriptors.InterruptSize},
}

// register reads a register of BAR0: all ones where there is none. mu is held.
func (p *Part) register(offset uint32) uint32 {
	for i, b := range blocks {
		if offset < b.offset || offset-b.offset >= b.size {
			continue
		}
		switch reg := uint64(offset - b.offset); reg {
		case descriptors.BlockRegType:
			return b.kind
		case descriptors.BlockRegVersion:
			return descriptors.BlockVersion1
		case descriptors.BlockRegNext:
			if i+1 < len(blocks) {
				return blocks[i+1].offset
			}
			return 0
		case descriptors.BlockRegSize:
			return b.size
		default:
			switch b.kind {
			case descriptors.BlockIdentity:
				return p.identity(reg)
			case descriptors.BlockHealth:
				return p.health(reg)
			case descriptors.BlockAdmin:
				return p.admin.register(reg)
			}
			return interrupts(reg)
		}
	}
	return ^uint32(0)
}

func log2(n int) uint32 { return uint32(bits.Len(uint(n)) - 1) }

// identity reads the identity block. Numbers are those of the device, so their limits are too: a client that has as
// many objects as it may is refused the next one.
func (p *Part) identity(reg uint64) uint32 {
	id := &p.nic.id
	has := id.Features&features | descriptors.FeatureDoorbellMarks
	switch reg {
	case descriptors.RegMagic:
		return descriptors.Magic
	case descriptors.RegDeviceVersion:
		return id.DeviceVersion
	case descriptors.RegFeaturesLow:
		return uint32(has)
	case descriptors.RegFeaturesHigh:
		return uint32(has >> 32)
	case descriptors.RegMaxEndpoints:
		return id.MaxEndpoints
	case descriptors.RegMaxCQs:
		return id.MaxCQs
	case descriptors.RegMaxRegions:
		return min(id.MaxRegions, maxRegions)
	case descriptors.RegMaxPtags:
		return min(id.MaxPtags, maxPtags)
	case descriptors.RegMaxQueueLog2:
		return log2(id.MaxQueueDepth)
	case descriptors.RegMaxCQLog2:
		return log2(max(1, id.MaxCQEntries))
	case descriptors.RegMaxSegments:
		return uint32(id.MaxSegments)
	case descriptors.RegMaxTransfer:
		return id.MaxTransfer
	case descriptors.RegMTU:
		return uint32(id.MTU)
	case descriptors.RegMACLow:
		return uint32(id.MAC[0]) | uint32(id.MAC[1])<<8 | uint32(id.MAC[2])<<16 | uint32(id.MAC[3])<<24
	case descriptors.RegMACHigh:
		return uint32(id.MAC[4]) | uint32(id.MAC[5])<<8
	case descriptors.RegPageSizeLog2:
		return log2(descriptors.PageSize)
	}
	return 0
}

func (p *Part) health(reg uint64) uint32 {
	a := &p.admin
	switch reg {
	case descriptors.RegStatus:
		if p.nic.isBroken() {
			return ^uint32(0) // the device is gone
		}
		s := descriptors.DeviceReady
		if a.fault != descriptors.FaultNone {
			s |= descriptors.DeviceFatal
		}
		if p.nic.up.Load() {
			s |= descriptors.DeviceLinkUp
		}
		return s
	case descriptors.RegFault:
		return a.fault
	case descriptors.RegFaultDetail:
		return a.faultDetail
	case descriptors.RegResetCount:
		return p.resets
	case descriptors.RegHeartbeat:
		return uint32(p.nic.relay.turns.Load())
	}
	return 0
}

func interrupts(reg uint64) uint32 {
	switch reg {
	case descriptors.RegVectors:
		return vectors
	case descriptors.RegTableOffset:
		return descriptors.MSIXTableOffset
	case descriptors.RegPBAOffset:
		return descriptors.MSIXPBAOffset
	}
	return 0
}

// setRegister writes a register of BAR0. What cannot be written is ignored.
func (p *Part) setRegister(offset, v uint32) error {
	if offset == descriptors.HealthOffset+uint32(descriptors.RegControl) {
		if v&descriptors.ControlReset == 0 {
			return nil
		}
		return p.stop()
	}
	if offset < descriptors.AdminOffset || offset-descriptors.AdminOffset >= descriptors.AdminSize {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.setAdmin(uint64(offset-descriptors.AdminOffset), v)
	return nil
}
