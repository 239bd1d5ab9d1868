package processor

import (
	"encoding/binary"
	"errors"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/machine"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

var errEntry = errors.New("PROC_ENTRY is not the start of a slot")

// Read reads a register of the processor block, by its offset in the block. Offsets
// without a register, and write-only ones, read as zero.
func (u *Unit) Read(offset uint32) (v uint32) {
	switch offset {
	case descriptors.RegProcessorEntry:
		return u.entry
	case descriptors.RegProcessorABI:
		return abi.Version
	case descriptors.RegProcessorDevice:
		return u.device
	case descriptors.RegSlotCount:
		return Slots
	case descriptors.RegSlotBase:
		return 0
	case descriptors.RegSlotSize:
		return u.layout.slotSize
	case descriptors.RegActiveSlot:
		return u.active
	case descriptors.RegPreviousSlot:
		return u.previous
	case descriptors.RegMailboxOffset:
		return u.layout.mailbox
	case descriptors.RegMailboxSize:
		return mailboxSize
	case descriptors.RegMailboxCommand:
		return u.command
	case descriptors.RegMailboxResult:
		return uint32(u.result)
	case descriptors.RegHoldLimit:
		return u.holdLimit
	}
	u.engine.Exclusive(func() { v = u.readState(offset) })
	return v
}

// readState reads what the engine can change. It runs in Exclusive.
func (u *Unit) readState(offset uint32) uint32 {
	r := &u.runner
	switch offset {
	case descriptors.RegProcessorStatus:
		return uint32(r.state)
	case descriptors.RegProcessorFault:
		return uint32(r.fault)
	case descriptors.RegProcessorFaultDetail:
		return r.faultDetail
	case descriptors.RegProcessorReady:
		if r.state == descriptors.ProcessorRunning {
			return descriptors.ProcessorReady
		}
		return 0
	}
	if offset >= descriptors.ProcessorHookBase {
		return u.readHook(abi.Hook((offset-descriptors.ProcessorHookBase)/descriptors.ProcessorHookSize),
			(offset-descriptors.ProcessorHookBase)%descriptors.ProcessorHookSize)
	}
	if img := r.image; img != nil && (r.state == descriptors.ProcessorRunning || r.state == descriptors.ProcessorFaulted) {
		return word(img, offset)
	}
	return 0
}

// word is one of the registers that say what runs.
func word(img *machine.Image, offset uint32) uint32 {
	var name [abi.MaxNameLength]byte
	var version [abi.MaxVersionLength]byte
	copy(name[:], img.Name)
	copy(version[:], img.Version)
	for _, f := range []struct {
		start uint32
		bytes []byte
	}{
		{descriptors.RegProcessorDigest, img.Digest[:]}, {descriptors.RegProcessorName, name[:]},
		{descriptors.RegProcessorVersion, version[:]}, {descriptors.RegProcessorBuildID, img.BuildID[:]},
	} {
		if at := offset - f.start; offset >= f.start && at+4 <= uint32(len(f.bytes)) {
			return binary.LittleEndian.Uint32(f.bytes[at:])
		}
	}
	return 0
}

func (u *Unit) readHook(hook abi.Hook, offset uint32) uint32 {
	if hook >= abi.Hooks {
		return 0
	}
	r, latched := &u.runner, &u.latched[hook]
	switch offset {
	case descriptors.HookRegRunsLow:
		latched.runs = uint32(r.runs[hook] >> 32)
		return uint32(r.runs[hook])
	case descriptors.HookRegRunsHigh:
		return latched.runs
	case descriptors.HookRegFaultsLow:
		latched.faults = uint32(r.faults[hook] >> 32)
		return uint32(r.faults[hook])
	case descriptors.HookRegFaultsHigh:
		return latched.faults
	case descriptors.HookRegWorstCase:
		if r.image != nil {
			return r.image.WorstCase[hook]
		}
	case descriptors.HookRegInstalled:
		if r.state != descriptors.ProcessorHalted && r.state != descriptors.ProcessorStarting && r.installed.Has(engine.Hook(hook)) {
			return 1
		}
	}
	return 0
}

// Write writes a register of the processor block. It returns false, and nothing
// happens, where that means nothing.
func (u *Unit) Write(offset, v uint32) bool {
	switch offset {
	case descriptors.RegProcessorControl:
		return u.Control(v)
	case descriptors.RegProcessorEntry:
		u.entry = v
	case descriptors.RegHoldLimit:
		u.holdLimit = v
	case descriptors.RegMailboxCommand:
		u.command = v
		u.engine.Exclusive(func() { u.result = u.mailbox(v) })
	default:
		return false
	}
	return true
}

// Stopped reports whether an image was refused or a program stopped: the state is
// faulted. It may be called at any time, and waits for no step of the engine: a host
// that looks after its device does not disturb those who step it.
func (u *Unit) Stopped() bool { return u.runner.faulted.Load() }
