// Package pciconfig is the configuration space of an emulated PCI Express
// function: what each bit reads, and what a write does to it. Offsets and bits
// are those of PCI Local Bus 3.0, PCI Power Management 1.2 and PCI Express
// Base 4.0, named as in linux/pci_regs.h.
package pciconfig

import (
	"encoding/binary"
	"sync"

	"github.com/trapeze-nic/trapeze/vfio"
)

// Size of the configuration space of a PCI Express function in bytes.
const Size = vfio.ConfigExtendedSize

// Space is a configuration space. Methods may be called at the same time, and none of them
// waits for anything but another.
type Space struct {
	mu    sync.Mutex // guards bytes
	bytes [Size]byte
	// writable bits take what is written; clearing bits are cleared by writing
	// ones (RW1C). All others are read only.
	writable, clearing [Size]byte
	reset              [Size]byte
}

// Read copies configuration space from offset on. Bytes beyond the end read all
// ones, as reads that no device answers do.
func (s *Space) Read(offset uint64, p []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	if offset < Size {
		n = copy(p, s.bytes[offset:])
	}
	for i := n; i < len(p); i++ {
		p[i] = 0xff
	}
}

// Write writes p from offset on and reports whether that asks for a function-level
// reset. Bytes beyond the end are ignored.
func (s *Space) Write(offset uint64, p []byte) (functionReset bool) {
	if offset >= Size {
		return false
	}
	p = p[:min(uint64(len(p)), Size-offset)]
	s.mu.Lock()
	defer s.mu.Unlock()
	power := s.powerState()
	for i, b := range p {
		at := offset + uint64(i)
		s.bytes[at] = s.bytes[at]&^s.writable[at] | b&s.writable[at]
		s.bytes[at] &^= b & s.clearing[at]
		if at == expressCap+expDeviceControl+1 && b&(deviceControlFLR>>8) != 0 {
			functionReset = true
		}
	}
	if now := s.powerState(); now != D0 && now != D3hot {
		// An unsupported state leaves the function where it is (PM 1.2, 5.6.1).
		s.setPowerState(power)
	}
	return functionReset
}

// Reset puts everything back to what it was when the function was made.
func (s *Space) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes = s.reset
}

// MemoryEnabled reports whether the function answers at its BARs: memory
// decoding is on and the function is in D0.
func (s *Space) MemoryEnabled() bool { return s.commands(vfio.CommandMemory) }

// BusMaster reports whether the function may do DMA and raise interrupts.
func (s *Space) BusMaster() bool { return s.commands(vfio.CommandBusMaster) }

// commands reports whether a bit of the command register has an effect.
func (s *Space) commands(bit uint16) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.read16(vfio.ConfigCommand)&bit != 0 && s.powerState() == D0
}

// Power states of a function. D1 and D2 are not supported.
const (
	D0    = 0
	D3hot = 3
)

func (s *Space) powerState() int { return int(s.read16(powerCap+pmControl) & pmStateMask) }

func (s *Space) setPowerState(state int) {
	at := powerCap + pmControl
	s.put16(at, s.read16(at)&^pmStateMask|uint16(state))
}

// MSIX returns the enable and function mask bits.
func (s *Space) MSIX() (enabled, masked bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.read16(msixCap + msixControl)
	return c&msixEnable != 0, c&msixFunctionMask != 0
}

// SetMSIX sets the enable bit and clears the function mask bit, as VFIO does
// for its user.
func (s *Space) SetMSIX(enabled bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := msixCap + msixControl
	c := s.read16(at) &^ (msixEnable | msixFunctionMask)
	if enabled {
		c |= msixEnable
	}
	s.put16(at, c)
}

func (s *Space) read16(at int) uint16     { return binary.LittleEndian.Uint16(s.bytes[at:]) }
func (s *Space) put16(at int, v uint16)   { binary.LittleEndian.PutUint16(s.bytes[at:], v) }
func (s *Space) put32(at int, v uint32)   { binary.LittleEndian.PutUint32(s.bytes[at:], v) }
func (s *Space) allow16(at int, m uint16) { binary.LittleEndian.PutUint16(s.writable[at:], m) }
func (s *Space) allow32(at int, m uint32) { binary.LittleEndian.PutUint32(s.writable[at:], m) }
func (s *Space) clear16(at int, m uint16) { binary.LittleEndian.PutUint16(s.clearing[at:], m) }
