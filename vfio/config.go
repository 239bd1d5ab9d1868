package vfio

import (
	"encoding/binary"
	"fmt"
)

// Numbers of PCI configuration space (PCI Local Bus 3.0, 6.1 and 6.7;
// linux/pci_regs.h), for ReadRegion and WriteRegion of RegionConfig.
const (
	// Sizes in bytes: conventional and PCI Express.
	ConfigSize         = 256
	ConfigExtendedSize = 4096

	// Offsets, and bits of the command register.
	ConfigCommand = 0x04 // 16 bits
	ConfigStatus  = 0x06 // 16 bits

	CommandMemory      uint16 = 0x0002 // the function answers at its memory BARs
	CommandBusMaster   uint16 = 0x0004 // the function may do DMA; VFIO clears it at open
	CommandINTxDisable uint16 = 0x0400

	statusCapabilities uint16 = 0x0010

	// IDs of capabilities (PCI Code and ID Assignment).
	CapabilityPM   uint16 = 0x01
	CapabilityMSI  uint16 = 0x05
	CapabilityPCIe uint16 = 0x10
	CapabilityMSIX uint16 = 0x11
)

// BARKind says what a base address register stands for.
type BARKind int

const (
	// BARNone: the register reads zero. The function does not have it, or it
	// is a 32-bit memory BAR without an address yet: only its size tells.
	BARNone BARKind = iota
	// BARIO is a range of I/O ports.
	BARIO
	// BARMemory is a range of memory, of 32-bit address unless Wide is set.
	BARMemory
	// BARUpper is the upper half of the 64-bit BAR before it.
	BARUpper
)

// BAR is a base address register.
type BAR struct {
	Kind         BARKind
	Address      uint64
	Wide         bool // 64-bit: the next BAR is BARUpper
	Prefetchable bool
}

// Capability is where a PCI capability stands.
type Capability struct {
	ID     uint16
	Offset int // in bytes from the start of configuration space
}

// Config is the configuration space of a PCI function with a type 0 header.
type Config struct {
	Vendor, Device             uint16
	SubsystemVendor, Subsystem uint16
	Command, Status            uint16
	// Class is 24 bits: base class, subclass, programming interface.
	Class         uint32
	Revision      uint8
	MultiFunction bool
	// InterruptPin is 1 to 4 for INTA to INTD, 0 for none.
	InterruptPin uint8
	BARs         [6]BAR
	// Capabilities are in the order of the chain.
	Capabilities []Capability
	// FunctionReset says that the PCI Express function can be reset on its own.
	FunctionReset bool
	// MSIX is nil if the function has no such capability.
	MSIX *MSIXCapability
}

// ReadConfig reads and parses the configuration space of a device. It fails
// with ErrDeviceGone if all reads give all ones, with ErrBadConfig if what it
// read makes no sense, and with the errors of dev.
func ReadConfig(dev Device) (*Config, error) {
	r, err := dev.Region(RegionConfig)
	if err != nil {
		return nil, err
	}
	b := make([]byte, min(r.Size, ConfigExtendedSize))
	if err := dev.ReadRegion(RegionConfig, 0, b); err != nil {
		return nil, err
	}
	c, err := ParseConfig(b)
	if err != nil {
		return nil, &Error{Op: "read configuration space of", Device: dev.Info().Address, Err: err, Hint: configHint(err)}
	}
	return c, nil
}

// ParseConfig parses configuration space: 64 bytes at least, usually
// ConfigSize or ConfigExtendedSize. What lies behind 4096 bytes is ignored.
// Errors wrap ErrBadConfig, or ErrDeviceGone if the vendor reads as all ones.
func ParseConfig(b []byte) (*Config, error) {
	b = b[:min(len(b), ConfigExtendedSize)]
	if len(b) < 64 {
		return nil, fmt.Errorf("%w: %d bytes, the header has 64", ErrBadConfig, len(b))
	}
	le := binary.LittleEndian
	if le.Uint16(b) == 0xffff {
		return nil, fmt.Errorf("%w: vendor reads as all ones", ErrDeviceGone)
	}
	if t := b[0x0e] & 0x7f; t != 0 {
		return nil, fmt.Errorf("%w: header type %d, want 0: a bridge is no endpoint", ErrBadConfig, t)
	}
	c := &Config{
		Vendor:          le.Uint16(b[0x00:]),
		Device:          le.Uint16(b[0x02:]),
		Command:         le.Uint16(b[ConfigCommand:]),
		Status:          le.Uint16(b[ConfigStatus:]),
		Revision:        b[0x08],
		Class:           le.Uint32(b[0x08:]) >> 8,
		MultiFunction:   b[0x0e]&0x80 != 0,
		SubsystemVendor: le.Uint16(b[0x2c:]),
		Subsystem:       le.Uint16(b[0x2e:]),
		InterruptPin:    b[0x3d],
	}
	if err := c.parseBARs(b[0x10:0x28]); err != nil {
		return nil, err
	}
	if c.Status&statusCapabilities != 0 {
		if err := c.parseCapabilities(b[:min(len(b), ConfigSize)]); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// parseBARs reads the six registers in b (PCI 3.0, 6.2.5.1).
func (c *Config) parseBARs(b []byte) error {
	for i := 0; i < len(c.BARs); i++ {
		v := binary.LittleEndian.Uint32(b[4*i:])
		bar := &c.BARs[i]
		switch {
		case v == 0:
		case v&1 != 0:
			*bar = BAR{Kind: BARIO, Address: uint64(v &^ 3)}
		case v&6 == 4:
			if i+1 == len(c.BARs) {
				return fmt.Errorf("%w: BAR%d is 64-bit and has no other half", ErrBadConfig, i)
			}
			high := binary.LittleEndian.Uint32(b[4*i+4:])
			*bar = BAR{Kind: BARMemory, Address: uint64(high)<<32 | uint64(v&^15), Wide: true, Prefetchable: v&8 != 0}
			i++
			c.BARs[i] = BAR{Kind: BARUpper}
		default: // type 1, below 1 MiB, is long out of use and 32-bit too
			*bar = BAR{Kind: BARMemory, Address: uint64(v &^ 15), Prefetchable: v&8 != 0}
		}
	}
	return nil
}

// Find returns where the first capability with that ID stands.
func (c *Config) Find(id uint16) (Capability, bool) {
	for _, e := range c.Capabilities {
		if e.ID == id {
			return e, true
		}
	}
	return Capability{}, false
}
