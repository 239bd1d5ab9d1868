package vfio

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// PCIeCapability tells what a function is on PCI Express.
type PCIeCapability struct {
	// Version of the capability, 1 or 2.
	Version uint8
	// Type is the device or port type: 0 for an endpoint, 1 for a legacy
	// endpoint, 9 for one integrated in the root complex.
	Type uint8
	// MaxPayload is the largest payload in bytes that the function can take, 128
	// to 4096.
	MaxPayload int
	// FunctionReset says that the function can be reset on its own.
	FunctionReset bool
	// Speed and Width of the link now: generation (1 is 2.5 GT/s) and lanes.
	// Both are 0 for a function that has no link of its own.
	Speed, Width uint8
}

// MSIXCapability tells where a function keeps its interrupt vectors.
type MSIXCapability struct {
	// Vectors is the size of the table, 1 to 2048.
	Vectors int
	// TableBAR and PBABAR are indexes of memory BARs; the offsets are in bytes,
	// multiples of 8.
	TableBAR    int
	TableOffset uint32
	PBABAR      int
	PBAOffset   uint32
	// Enabled and Masked are the capability's control bits.
	Enabled, Masked bool
}

// parseCapabilities walks the chain in the first 256 bytes (PCI 3.0, 6.7). The
// chain is the device's word: every step is checked, and none is taken twice.
func (c *Config) parseCapabilities(b []byte) error {
	var seen [ConfigSize / 4]bool
	for at := int(b[0x34] &^ 3); at != 0; at = int(b[at+1] &^ 3) {
		if at < 64 || at+4 > len(b) {
			return fmt.Errorf("%w: a capability at %#x, outside %#x to %#x", ErrBadConfig, at, 64, len(b))
		}
		if seen[at/4] {
			return fmt.Errorf("%w: the capabilities form a loop at %#x", ErrBadConfig, at)
		}
		seen[at/4] = true
		if b[at] == 0xff {
			return fmt.Errorf("%w: no capability at %#x where one should be", ErrBadConfig, at)
		}
		id := uint16(b[at])
		c.Capabilities = append(c.Capabilities, Capability{ID: id, Offset: at})
		var err error
		switch {
		case id == CapabilityPCIe && c.PCIe == nil:
			c.PCIe, err = parsePCIe(b[at:])
		case id == CapabilityMSIX && c.MSIX == nil:
			c.MSIX, err = c.parseMSIX(b[at:])
		}
		if err != nil {
			return fmt.Errorf("%w at %#x", err, at)
		}
	}
	return nil
}

// parsePCIe reads a PCI Express capability (PCIe base specification, 7.5.3).
func parsePCIe(b []byte) (*PCIeCapability, error) {
	if len(b) < 0x14 {
		return nil, fmt.Errorf("%w: the PCI Express capability is cut off", ErrBadConfig)
	}
	le := binary.LittleEndian
	flags, device, link := le.Uint16(b[2:]), le.Uint32(b[4:]), le.Uint16(b[0x12:])
	if device&7 > 5 {
		return nil, fmt.Errorf("%w: PCI Express payload size code %d is reserved", ErrBadConfig, device&7)
	}
	return &PCIeCapability{
		Version:       uint8(flags & 15),
		Type:          uint8(flags >> 4 & 15),
		MaxPayload:    128 << (device & 7),
		FunctionReset: device&(1<<28) != 0,
		Speed:         uint8(link & 15),
		Width:         uint8(link >> 4 & 63),
	}, nil
}

// parseMSIX reads an MSI-X capability (PCI 3.0, 6.8.2).
func (c *Config) parseMSIX(b []byte) (*MSIXCapability, error) {
	if len(b) < 12 {
		return nil, fmt.Errorf("%w: the MSI-X capability is cut off", ErrBadConfig)
	}
	le := binary.LittleEndian
	control, table, pba := le.Uint16(b[2:]), le.Uint32(b[4:]), le.Uint32(b[8:])
	m := &MSIXCapability{
		Vectors:     int(control&0x7ff) + 1,
		TableBAR:    int(table & 7),
		TableOffset: table &^ 7,
		PBABAR:      int(pba & 7),
		PBAOffset:   pba &^ 7,
		Masked:      control&0x4000 != 0,
		Enabled:     control&0x8000 != 0,
	}
	for _, bar := range []int{m.TableBAR, m.PBABAR} {
		// A BAR that reads zero may still be a memory BAR, see BARNone.
		if bar >= len(c.BARs) || c.BARs[bar].Kind == BARIO || c.BARs[bar].Kind == BARUpper {
			return nil, fmt.Errorf("%w: MSI-X names BAR%d, which is not memory", ErrBadConfig, bar)
		}
	}
	return m, nil
}

// parseExtended walks the chain from offset 256 (PCIe base specification,
// 7.6.2).
func (c *Config) parseExtended(b []byte) error {
	var seen [ConfigExtendedSize / 4]bool
	for at := ConfigSize; at != 0; {
		if at == ConfigSize && at+4 > len(b) {
			return nil
		}
		if at < ConfigSize || at+4 > len(b) {
			return fmt.Errorf("%w: an extended capability at %#x, outside %#x to %#x", ErrBadConfig, at, ConfigSize, len(b))
		}
		if seen[at/4] {
			return fmt.Errorf("%w: the extended capabilities form a loop at %#x", ErrBadConfig, at)
		}
		seen[at/4] = true
		v := binary.LittleEndian.Uint32(b[at:])
		// All zeros or ID all ones at the start of the chain: there is none.
		if at == ConfigSize && (v == 0 || v&0xffff == 0xffff) {
			return nil
		}
		// ID 0 heads a chain whose first capability is hidden.
		if id := uint16(v); id != 0 {
			c.Extended = append(c.Extended, Capability{ID: id, Version: uint8(v >> 16 & 15), Offset: at})
		}
		at = int(v >> 20 &^ 3)
	}
	return nil
}

func configHint(err error) string {
	if errors.Is(err, ErrDeviceGone) {
		return "the device is asleep, in reset or has been removed: look at its power state and link"
	}
	return "the device or its emulation is broken: look at it with lspci -xxxx"
}
