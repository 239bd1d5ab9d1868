package share

import (
	"math/bits"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// features are those of a device that its parts have too: none that needs device memory, programs, or frames that are
// not Trapeze's. A part's doorbells are memory.
const features = datasheet.FeatureReliableDelivery | datasheet.FeatureReliableReception | datasheet.FeatureRDMAWrite |
	datasheet.FeatureRDMARead | datasheet.FeatureInline | datasheet.FeatureReceiveQueue

// blocks are the register blocks of a part, in the order of the chain.
var blocks = [...]struct{ kind, offset, size uint32 }{
	{datasheet.BlockIdentity, datasheet.IdentityOffset, datasheet.IdentitySize},
	{datasheet.BlockHealth, datasheet.HealthOffset, datasheet.HealthSize},
	{datasheet.BlockAdmin, datasheet.AdminOffset, datasheet.AdminSize},
	{datasheet.BlockInterrupt, datasheet.InterruptOffset, datasheet.InterruptSize},
}

// register reads a register of BAR0: all ones where there is none. mu is held.
func (p *Part) register(offset uint32) uint32 {
	for i, b := range blocks {
		if offset < b.offset || offset-b.offset >= b.size {
			continue
		}
		switch reg := uint64(offset - b.offset); reg {
		case datasheet.BlockRegType:
			return b.kind
		case datasheet.BlockRegVersion:
			return datasheet.BlockVersion1
		case datasheet.BlockRegNext:
			if i+1 < len(blocks) {
				return blocks[i+1].offset
			}
			return 0
		case datasheet.BlockRegSize:
			return b.size
		default:
			switch b.kind {
			case datasheet.BlockIdentity:
				return p.identity(reg)
			case datasheet.BlockHealth:
				return p.health(reg)
			case datasheet.BlockAdmin:
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
	has := id.Features&features | datasheet.FeatureDoorbellMarks
	switch reg {
	case datasheet.RegMagic:
		return datasheet.Magic
	case datasheet.RegDeviceVersion:
		return id.DeviceVersion
	case datasheet.RegFeaturesLow:
		return uint32(has)
	case datasheet.RegFeaturesHigh:
		return uint32(has >> 32)
	case datasheet.RegMaxEndpoints:
		return id.MaxEndpoints
	case datasheet.RegMaxCQs:
		return id.MaxCQs
	case datasheet.RegMaxRegions:
		return min(id.MaxRegions, maxRegions)
	case datasheet.RegMaxPtags:
		return min(id.MaxPtags, maxPtags)
	case datasheet.RegMaxQueueLog2:
		return log2(id.MaxQueueDepth)
	case datasheet.RegMaxCQLog2:
		return log2(max(1, id.MaxCQEntries))
	case datasheet.RegMaxSegments:
		return uint32(id.MaxSegments)
	case datasheet.RegMaxTransfer:
		return id.MaxTransfer
	case datasheet.RegMTU:
		return uint32(id.MTU)
	case datasheet.RegMACLow:
		return uint32(id.MAC[0]) | uint32(id.MAC[1])<<8 | uint32(id.MAC[2])<<16 | uint32(id.MAC[3])<<24
	case datasheet.RegMACHigh:
		return uint32(id.MAC[4]) | uint32(id.MAC[5])<<8
	case datasheet.RegPageSizeLog2:
		return log2(datasheet.PageSize)
	}
	return 0
}

func (p *Part) health(reg uint64) uint32 {
	a := &p.admin
	switch reg {
	case datasheet.RegStatus:
		if p.nic.isBroken() {
			return ^uint32(0) // the device is gone
		}
		s := datasheet.DeviceReady
		if a.fault != datasheet.FaultNone {
			s |= datasheet.DeviceFatal
		}
		if p.nic.up.Load() {
			s |= datasheet.DeviceLinkUp
		}
		return s
	case datasheet.RegFault:
		return a.fault
	case datasheet.RegFaultDetail:
		return a.faultDetail
	case datasheet.RegResetCount:
		return p.resets
	case datasheet.RegHeartbeat:
		return uint32(p.nic.relay.turns.Load())
	}
	return 0
}

func interrupts(reg uint64) uint32 {
	switch reg {
	case datasheet.RegVectors:
		return vectors
	case datasheet.RegTableOffset:
		return datasheet.MSIXTableOffset
	case datasheet.RegPBAOffset:
		return datasheet.MSIXPBAOffset
	}
	return 0
}

// setRegister writes a register of BAR0. What cannot be written is ignored.
func (p *Part) setRegister(offset, v uint32) error {
	if offset == datasheet.HealthOffset+uint32(datasheet.RegControl) {
		if v&datasheet.ControlReset == 0 {
			return nil
		}
		return p.stop()
	}
	if offset < datasheet.AdminOffset || offset-datasheet.AdminOffset >= datasheet.AdminSize {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.setAdmin(uint64(offset-datasheet.AdminOffset), v)
	return nil
}
