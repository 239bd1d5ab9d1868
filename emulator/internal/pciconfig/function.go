package pciconfig

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/trapeze-nic/trapeze/vfio"
)

// BAR is a 64-bit memory BAR.
type BAR struct {
	// Index of its lower half: 0, 2 or 4.
	Index int
	// Size in bytes, a power of two of at least 16.
	Size         uint64
	Prefetchable bool
	// Address that it has at first, a multiple of Size.
	Address uint64
}

// Function describes a PCI Express endpoint function.
type Function struct {
	Vendor, Device             uint16
	SubsystemVendor, Subsystem uint16
	Revision                   uint8
	Class                      uint32 // 24 bits
	BARs                       []BAR
	// Vectors is the number of MSI-X vectors, 1 to 2048. The table and pending
	// bits are at offsets of BAR MSIXBAR, multiples of 8.
	Vectors                int
	MSIXBAR                int
	TableOffset, PBAOffset uint32
	// SerialNumber is an EUI-64.
	SerialNumber [8]byte
}

// ErrFunction is wrapped by the errors of New.
var ErrFunction = errors.New("bad description of a PCI function")

// New makes the configuration space of a function as it is after power-on, but
// with its BARs placed, as firmware would: memory decoding and bus mastering
// are off.
func New(f Function) (*Space, error) {
	if f.Vectors < 1 || f.Vectors > 2048 || f.TableOffset%8 != 0 || f.PBAOffset%8 != 0 || f.MSIXBAR&^7 != 0 {
		return nil, fmt.Errorf("%w: MSI-X table of %d vectors at BAR %d", ErrFunction, f.Vectors, f.MSIXBAR)
	}
	s := new(Space)
	s.header(f)
	for _, b := range f.BARs {
		if err := s.addBAR(b); err != nil {
			return nil, err
		}
	}
	s.power()
	s.express()
	s.msix(f)
	s.serial(f.SerialNumber)
	s.reset = s.bytes
	return s, nil
}

func (s *Space) header(f Function) {
	s.put16(vendorID, f.Vendor)
	s.put16(deviceID, f.Device)
	s.put16(subsystemVID, f.SubsystemVendor)
	s.put16(subsystemID, f.Subsystem)
	s.put32(classRevision, f.Class<<8|uint32(f.Revision))
	s.allow16(vfio.ConfigCommand, vfio.CommandMemory|vfio.CommandBusMaster|commandParity|commandSERR|vfio.CommandINTxDisable)
	s.put16(vfio.ConfigStatus, statusCapList)
	s.clear16(vfio.ConfigStatus, statusRW1C)
	// These two have no effect on PCI Express, and are kept for software (Base 7.5.1.1).
	s.writable[cacheLineSize] = 0xff
	s.writable[interruptLine] = 0xff
	s.bytes[capPointer] = powerCap
}

func (s *Space) addBAR(b BAR) error {
	if b.Index < 0 || b.Index > 4 || b.Index%2 != 0 || b.Size < 16 || bits.OnesCount64(b.Size) != 1 || b.Address%b.Size != 0 {
		return fmt.Errorf("%w: BAR %d of %#x bytes at %#x", ErrFunction, b.Index, b.Size, b.Address)
	}
	flags := uint64(barMemory64)
	if b.Prefetchable {
		flags |= barPrefetch
	}
	at := bar0 + 4*b.Index
	s.put32(at, uint32(b.Address|flags))
	s.put32(at+4, uint32(b.Address>>32))
	// Address bits below the size are zero and stay so: writing all ones shows
	// the size.
	mask := ^(b.Size - 1) & barAddressMask
	s.allow32(at, uint32(mask))
	s.allow32(at+4, uint32(mask>>32))
	return nil
}

// capability writes the header of a capability.
func (s *Space) capability(at int, id uint16, next byte) {
	s.bytes[at], s.bytes[at+1] = byte(id), next
}

func (s *Space) power() {
	s.capability(powerCap, vfio.CapabilityPM, expressCap)
	s.put16(powerCap+pmCapability, pmVersion12)
	s.put16(powerCap+pmControl, pmNoSoftReset)
	s.allow16(powerCap+pmControl, pmStateMask)
}

// express describes a link of eight lanes at 8 GT/s. No data crosses it; it equals
// what FPGA boards that could hold this device usually have.
func (s *Space) express() {
	const c = expressCap
	s.capability(c, vfio.CapabilityPCIe, msixCap)
	s.put16(c+expFlags, expVersion2)
	s.put32(c+expDeviceCaps, deviceCapsPayload256|deviceCapsExtTag|deviceCapsRoleErrors|deviceCapsFLR)
	s.put16(c+expDeviceControl, deviceControlDefault)
	s.allow16(c+expDeviceControl, deviceControlWritable)
	s.clear16(c+expDeviceStatus, deviceStatusRW1C)
	s.put32(c+expLinkCaps, linkSpeed8GT|linkWidth8|linkCapsASPMOptional)
	s.allow16(c+expLinkControl, linkControlWritable)
	s.put16(c+expLinkStatus, linkSpeed8GT|linkWidth8)
	s.put32(c+expDeviceCaps2, deviceCaps2NoTimeout)
	s.allow16(c+expDevControl2, devControl2NoTimeout)
	s.put32(c+expLinkCaps2, linkSpeedsTo8GT)
	s.put16(c+expLinkControl2, linkSpeed8GT)
	s.allow16(c+expLinkControl2, linkControl2SpeedField)
}

func (s *Space) msix(f Function) {
	s.capability(msixCap, vfio.CapabilityMSIX, 0)
	s.put16(msixCap+msixControl, uint16(f.Vectors-1))
	s.allow16(msixCap+msixControl, msixEnable|msixFunctionMask)
	s.put32(msixCap+msixTable, f.TableOffset|uint32(f.MSIXBAR))
	s.put32(msixCap+msixPBA, f.PBAOffset|uint32(f.MSIXBAR))
}

func (s *Space) serial(eui [8]byte) {
	s.put32(serialCap, extSerial)
	// The EUI-64's most significant byte stands last (Base 7.9.3).
	for i, b := range eui {
		s.bytes[serialCap+4+7-i] = b
	}
}
