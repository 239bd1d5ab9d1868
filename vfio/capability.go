package vfio

import (
	"encoding/binary"
	"errors"
	"fmt"
)

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
		case id == CapabilityPCIe:
			err = c.parsePCIe(b[at:])
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
func (c *Config) parsePCIe(b []byte) error {
	if len(b) < 8 {
		return fmt.Errorf("%w: the PCI Express capability is cut off", ErrBadConfig)
	}
	c.FunctionReset = binary.LittleEndian.Uint32(b[4:])&(1<<28) != 0
	return nil
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

func configHint(err error) string {
	if errors.Is(err, ErrDeviceGone) {
		return "the device is asleep, in reset or has been removed: look at its power state and link"
	}
	return "the device or its emulation is broken: look at it with lspci -xxxx"
}
