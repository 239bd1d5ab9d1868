package load

import (
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"

	"github.com/trapeze-nic/trapeze/internal/abi"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
)

// Status is a NIC's report on its control program.
type Status struct {
	State datasheet.ProcessorState
	// Fault is why no program runs, nil if nothing went wrong.
	Fault  *ProcessorError
	ABI    uint32 // of the processor, major<<16 | minor
	Device uint32 // PCI vendor<<16 | device
	Slots  Slots
	// Name, Version, BuildID and Digest are those of the image that runs; empty
	// and zero without one.
	Name, Version string
	BuildID       [abi.MaxBuildID]byte
	Digest        [sha256.Size]byte
	Hooks         [abi.Hooks]HookStatus
}

// HookStatus is a NIC's report on one hook.
type HookStatus struct {
	Installed bool
	Runs      uint64 // times the program ran
	Faults    uint64 // times it was stopped by a fault
	WorstCase uint32 // instructions of a run at worst, as the NIC found
}

// ReadStatus asks a NIC for its control program. Errors wrap ErrGone, ErrRegisters
// or what the NIC's access functions return.
func ReadStatus(nic NIC) (Status, error) {
	var s Status
	var state uint32
	if err := readAll(nic, map[uint32]*uint32{
		datasheet.RegProcessorStatus: &state, datasheet.RegProcessorABI: &s.ABI, datasheet.RegProcessorDevice: &s.Device,
	}); err != nil {
		return s, err
	}
	s.State = datasheet.ProcessorState(state & datasheet.ProcessorStateMask)
	if s.State > datasheet.ProcessorFaulted {
		return s, fmt.Errorf("%w: PROC_STATUS is %#x", ErrRegisters, state)
	}
	var err error
	if s.Slots, err = readSlots(nic); err != nil {
		return s, err
	}
	if s.Fault, err = readFault(nic); err != nil {
		return s, err
	}
	var name [abi.MaxNameLength]byte
	var version [abi.MaxVersionLength]byte
	for _, f := range []struct {
		register uint32
		to       []byte
	}{
		{datasheet.RegProcessorName, name[:]}, {datasheet.RegProcessorVersion, version[:]},
		{datasheet.RegProcessorBuildID, s.BuildID[:]}, {datasheet.RegProcessorDigest, s.Digest[:]},
	} {
		if err := readBytes(nic, f.register, f.to); err != nil {
			return s, err
		}
	}
	s.Name, s.Version = text(name[:]), text(version[:])
	for h := range s.Hooks {
		if s.Hooks[h], err = readHook(nic, abi.Hook(h)); err != nil {
			return s, err
		}
	}
	return s, nil
}

func readFault(nic NIC) (*ProcessorError, error) {
	fault, err := read(nic, datasheet.RegProcessorFault)
	if err != nil || fault == uint32(datasheet.ProcessorFaultNone) {
		return nil, err
	}
	detail, err := read(nic, datasheet.RegProcessorFaultDetail)
	if err != nil {
		return nil, err
	}
	e := &ProcessorError{Fault: datasheet.ProcessorFault(fault)}
	var hook uint8
	hook, e.Instruction = datasheet.SplitProcessorFault(detail)
	e.Hook = abi.Hook(hook)
	return e, nil
}

func readHook(nic NIC, h abi.Hook) (HookStatus, error) {
	base := uint32(datasheet.ProcessorHookBase) + uint32(h)*datasheet.ProcessorHookSize
	var runs, runsHigh, faults, faultsHigh, installed uint32
	var s HookStatus
	// Low halves first: reading one latches its high half.
	for _, f := range []struct {
		register uint32
		to       *uint32
	}{
		{datasheet.HookRegRunsLow, &runs}, {datasheet.HookRegRunsHigh, &runsHigh},
		{datasheet.HookRegFaultsLow, &faults}, {datasheet.HookRegFaultsHigh, &faultsHigh},
		{datasheet.HookRegWorstCase, &s.WorstCase}, {datasheet.HookRegInstalled, &installed},
	} {
		var err error
		if *f.to, err = read(nic, base+f.register); err != nil {
			return s, err
		}
	}
	s.Runs, s.Faults = uint64(runsHigh)<<32|uint64(runs), uint64(faultsHigh)<<32|uint64(faults)
	s.Installed = installed == 1
	return s, nil
}

// Describe makes a report of what a NIC says. The NIC is not trusted: its text is
// made printable.
func (s Status) Describe() telemetry.Program {
	p := telemetry.Program{
		State: s.State.String(), Name: printable(s.Name), Version: printable(s.Version),
		Slot: slot(s.Slots.Active), Previous: slot(s.Slots.Previous), Slots: s.Slots.Count, SlotBytes: s.Slots.Size,
		ABI: fmt.Sprintf("%d.%d", s.ABI>>16, s.ABI&0xffff), Hooks: []telemetry.ProgramHook{},
	}
	if s.Fault != nil {
		p.Fault = s.Fault.Error()
	}
	if s.BuildID != [len(s.BuildID)]byte{} {
		p.BuildID = fmt.Sprintf("%x", s.BuildID)
	}
	if s.Digest != [sha256.Size]byte{} {
		p.Digest = fmt.Sprintf("%x", s.Digest)
	}
	for h, hook := range s.Hooks {
		p.Hooks = append(p.Hooks, telemetry.ProgramHook{Hook: abi.Hook(h).String(), Installed: hook.Installed, Runs: hook.Runs, Faults: hook.Faults, WorstCase: hook.WorstCase})
	}
	return p
}

func slot(n uint32) *uint32 {
	if n == datasheet.NoSlot {
		return nil
	}
	return &n
}

// printable escapes what would not be text on a terminal.
func printable(s string) string { return strings.Trim(strconv.QuoteToASCII(s), `"`) }
