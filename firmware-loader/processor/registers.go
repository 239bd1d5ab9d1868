package processor

import (
	"encoding/binary"
	"errors"

	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/machine"
	"github.com/trapeze-nic/trapeze/internal/abi"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

var errEntry = errors.New("PROC_ENTRY is not the start of a slot")

// Read reads a register of the processor block, by its offset in the block. Offsets
// without a register, and write-only ones, read as zero.
func (u *Unit) Read(offset uint32) (v uint32) {
	switch offset {
	case datasheet.RegProcessorEntry:
		return u.entry
	case datasheet.RegProcessorABI:
		return abi.Version
	case datasheet.RegProcessorDevice:
		return u.device
	case datasheet.RegSlotCount:
		return Slots
	case datasheet.RegSlotBase:
		return 0
	case datasheet.RegSlotSize:
		return u.layout.slotSize
	case datasheet.RegActiveSlot:
		return u.active
	case datasheet.RegPreviousSlot:
		return u.previous
	case datasheet.RegMailboxOffset:
		return u.layout.mailbox
	case datasheet.RegMailboxSize:
		return mailboxSize
	case datasheet.RegMailboxCommand:
		return u.command
	case datasheet.RegMailboxResult:
		return uint32(u.result)
	case datasheet.RegHoldLimit:
		return u.holdLimit
	}
	u.engine.Exclusive(func() { v = u.readState(offset) })
	return v
}

// readState reads what the engine can change. It runs in Exclusive.
func (u *Unit) readState(offset uint32) uint32 {
	r := &u.runner
	switch offset {
	case datasheet.RegProcessorStatus:
		return uint32(r.state)
	case datasheet.RegProcessorFault:
		return uint32(r.fault)
	case datasheet.RegProcessorFaultDetail:
		return r.faultDetail
	case datasheet.RegProcessorReady:
		if r.state == datasheet.ProcessorRunning {
			return datasheet.ProcessorReady
		}
		return 0
	}
	if offset >= datasheet.ProcessorHookBase {
		return u.readHook(abi.Hook((offset-datasheet.ProcessorHookBase)/datasheet.ProcessorHookSize),
			(offset-datasheet.ProcessorHookBase)%datasheet.ProcessorHookSize)
	}
	if img := r.image; img != nil && (r.state == datasheet.ProcessorRunning || r.state == datasheet.ProcessorFaulted) {
		return word(img, offset)
	}
	return 0
}

func word(img *machine.Image, offset uint32) uint32 {
	var name [abi.MaxNameLength]byte
	var version [abi.MaxVersionLength]byte
	copy(name[:], img.Name)
	copy(version[:], img.Version)
	for _, f := range []struct {
		start uint32
		bytes []byte
	}{
		{datasheet.RegProcessorDigest, img.Digest[:]}, {datasheet.RegProcessorName, name[:]},
		{datasheet.RegProcessorVersion, version[:]}, {datasheet.RegProcessorBuildID, img.BuildID[:]},
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
	case datasheet.HookRegRunsLow:
		latched.runs = uint32(r.runs[hook] >> 32)
		return uint32(r.runs[hook])
	case datasheet.HookRegRunsHigh:
		return latched.runs
	case datasheet.HookRegFaultsLow:
		latched.faults = uint32(r.faults[hook] >> 32)
		return uint32(r.faults[hook])
	case datasheet.HookRegFaultsHigh:
		return latched.faults
	case datasheet.HookRegWorstCase:
		if r.image != nil {
			return r.image.WorstCase[hook]
		}
	case datasheet.HookRegInstalled:
		if r.state != datasheet.ProcessorHalted && r.state != datasheet.ProcessorStarting && r.installed.Has(engine.Hook(hook)) {
			return 1
		}
	}
	return 0
}

// Write writes a register of the processor block. It returns false, and nothing
// happens, where that means nothing.
func (u *Unit) Write(offset, v uint32) bool {
	switch offset {
	case datasheet.RegProcessorControl:
		return u.Control(v)
	case datasheet.RegProcessorEntry:
		u.entry = v
	case datasheet.RegHoldLimit:
		u.holdLimit = v
	case datasheet.RegMailboxCommand:
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
