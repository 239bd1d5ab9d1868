package datasheet

import (
	"fmt"
	"slices"
)

// Processor block: the NIC processor, which runs control programs, and its
// mailbox (SPEC.md 2.10 and 14). Optional: a driver finds out by walking the
// chain.
const (
	ProcessorSize = 0x200
	// RegProcessorControl takes one Processor command bit.
	RegProcessorControl = 0x10
	// RegProcessorStatus holds a ProcessorState in the bits of
	// ProcessorStateMask.
	RegProcessorStatus = 0x14
	// RegProcessorFault holds a ProcessorFault, RegProcessorFaultDetail where
	// it was: hook<<24 | instruction.
	RegProcessorFault       = 0x18
	RegProcessorFaultDetail = 0x1c
	// RegProcessorEntry is the offset in SRAM of the image to run.
	RegProcessorEntry = 0x20
	// RegProcessorReady holds ProcessorReady while that image runs, else 0.
	RegProcessorReady = 0x24
	// RegProcessorABI is the version of the ABI that the processor has,
	// major<<16 | minor.
	RegProcessorABI = 0x28
	// RegProcessorDevice is compared with ImageHeader.Device.
	RegProcessorDevice = 0x2c
	RegSlotCount       = 0x30
	// RegSlotBase is the offset in SRAM of slot 0; slot n follows n times
	// RegSlotSize bytes later.
	RegSlotBase = 0x34
	RegSlotSize = 0x38
	// RegActiveSlot is the slot with the image that runs, RegPreviousSlot the
	// one that ran before it. NoSlot is none.
	RegActiveSlot   = 0x3c
	RegPreviousSlot = 0x40
	// RegMailboxOffset is where in SRAM the mailbox starts.
	RegMailboxOffset = 0x44
	RegMailboxSize   = 0x48
	// RegMailboxCommand runs a map operation, see MailboxWord.
	RegMailboxCommand = 0x4c
	// RegMailboxResult is a MailboxResult.
	RegMailboxResult = 0x50
	// RegHoldLimit in microseconds: how long frames are held while halted.
	RegHoldLimit = 0x54
	// RegProcessorDigest, RegProcessorName, RegProcessorVersion and
	// RegProcessorBuildID are the bytes of the image that runs, in the order of
	// memory; zero without one.
	RegProcessorDigest  = 0x60
	RegProcessorName    = 0x80
	RegProcessorVersion = 0xa0
	RegProcessorBuildID = 0xb0
	// ProcessorHookBase is where the registers of hook 0 start; each hook has
	// ProcessorHookSize bytes.
	ProcessorHookBase = 0x100
	ProcessorHookSize = 0x20
)

// ProcessorRegisters lists the registers of the processor block as Registers
// does those of the others.
func ProcessorRegisters() []Register {
	runs := slices.Clone(processorRegisters)
	for _, a := range []struct {
		name  string
		at, n uint32
	}{
		{"PROC_DIGEST", RegProcessorDigest, 8}, {"PROC_NAME", RegProcessorName, 8},
		{"PROC_VERSION", RegProcessorVersion, 4}, {"PROC_BUILD_ID", RegProcessorBuildID, 5},
	} {
		for i := range a.n {
			runs = append(runs, run{BlockProcessor, a.at + 4*i, RegisterRO, ofDevice, fmt.Sprintf("%s_%d", a.name, i)})
		}
	}
	for h := range uint32(ImageHookCount) {
		at, hook := ProcessorHookBase+ProcessorHookSize*h, fmt.Sprintf("HOOK_%d_", h)
		runs = append(runs,
			run{BlockProcessor, at + HookRegRunsLow, RegisterRO, 0, hook + "RUNS_LOW " + hook + "RUNS_HIGH " + hook + "FAULTS_LOW " + hook + "FAULTS_HIGH"},
			run{BlockProcessor, at + HookRegWorstCase, RegisterRO, ofDevice, hook + "WORST_CASE " + hook + "INSTALLED"})
	}
	return list(runs)
}

var processorRegisters = []run{
	{BlockProcessor, RegProcessorControl, RegisterWO, 0, "PROC_CONTROL"},
	{BlockProcessor, RegProcessorStatus, RegisterRO, ofDevice, "PROC_STATUS PROC_FAULT PROC_FAULT_DETAIL"},
	{BlockProcessor, RegProcessorEntry, RegisterRW, ofDevice, "PROC_ENTRY"},
	{BlockProcessor, RegProcessorReady, RegisterRO, ofDevice, "PROC_READY PROC_ABI PROC_DEVICE SLOT_COUNT SLOT_BASE SLOT_SIZE " +
		"ACTIVE_SLOT PREVIOUS_SLOT MAILBOX_OFFSET MAILBOX_SIZE"},
	{BlockProcessor, RegMailboxCommand, RegisterRW, 0, "MAILBOX_COMMAND"},
	{BlockProcessor, RegMailboxResult, RegisterRO, int64(MailboxOK), "MAILBOX_RESULT"},
	{BlockProcessor, RegHoldLimit, RegisterRW, HoldLimitReset, "HOLD_LIMIT"},
}

// Registers of a hook, at offsets from where the hook's start.
const (
	HookRegRunsLow    = 0x00 // times the program ran
	HookRegRunsHigh   = 0x04
	HookRegFaultsLow  = 0x08 // times it was stopped by a fault
	HookRegFaultsHigh = 0x0c
	HookRegWorstCase  = 0x10 // instructions of a run at worst
	HookRegInstalled  = 0x14 // 1 while a program decides
)

// Command bits of RegProcessorControl. More than one at a time is ignored and
// counted as a bad access.
const (
	// ProcessorHalt stops the program; frames are held.
	ProcessorHalt uint32 = 0x1
	// ProcessorRun checks the image at RegProcessorEntry and runs it.
	ProcessorRun uint32 = 0x2
	// ProcessorUseBuiltIn forgets the program: built-in behaviour.
	ProcessorUseBuiltIn uint32 = 0x4
)

// Values of the processor block.
const (
	// ProcessorReady reads "REDY" in memory order.
	ProcessorReady uint32 = 0x59444552
	// ProcessorStateMask are the bits of RegProcessorStatus with the state. The
	// others are reserved and zero.
	ProcessorStateMask uint32 = 0xf
	// NoSlot stands for "none" where a slot is expected.
	NoSlot uint32 = 0xff
	// HoldLimitReset is the reset value of RegHoldLimit in microseconds.
	HoldLimitReset = 100000
)

// ProcessorState says what the NIC processor does.
type ProcessorState uint32

const (
	ProcessorBuiltIn  ProcessorState = 0 // no program
	ProcessorHalted   ProcessorState = 1
	ProcessorStarting ProcessorState = 2
	ProcessorRunning  ProcessorState = 3
	ProcessorFaulted  ProcessorState = 4 // refused or trapped; built-in behaviour
)

var processorStates = [...]string{"built-in", "halted", "starting", "running", "faulted"}

func (s ProcessorState) String() string { return nameOf(processorStates[:], s, "processor state") }

// ProcessorFault says why the NIC processor does not run a program.
type ProcessorFault uint32

const (
	ProcessorFaultNone    ProcessorFault = 0
	ProcessorFaultImage   ProcessorFault = 1 // malformed
	ProcessorFaultDigest  ProcessorFault = 2
	ProcessorFaultRefused ProcessorFault = 3 // by the check of its programs
	ProcessorFaultABI     ProcessorFault = 4
	ProcessorFaultDevice  ProcessorFault = 5
	ProcessorFaultSRAM    ProcessorFault = 6
	ProcessorFaultBudget  ProcessorFault = 7 // a run took too many instructions
	ProcessorFaultTrap    ProcessorFault = 8 // a run did what it may not
)

var processorFaults = [...]string{
	"none", "bad image", "wrong digest", "program refused", "wrong ABI",
	"for another device", "not enough SRAM", "over budget", "trap",
}

func (f ProcessorFault) String() string { return nameOf(processorFaults[:], f, "processor fault") }

// ProcessorFaultWord is the value of RegProcessorFaultDetail for an instruction
// of a hook's program.
func ProcessorFaultWord(hook uint8, instruction uint32) uint32 {
	return uint32(hook)<<24 | instruction&0xffffff
}

// SplitProcessorFault returns the parts of RegProcessorFaultDetail.
func SplitProcessorFault(v uint32) (hook uint8, instruction uint32) {
	return uint8(v >> 24), v & 0xffffff
}

// MailboxOp is a map operation of the mailbox.
type MailboxOp uint8

const (
	MailboxLookup MailboxOp = 1 // key -> value
	MailboxUpdate MailboxOp = 2 // key, value
	MailboxDelete MailboxOp = 3 // key
	MailboxNext   MailboxOp = 4 // key -> the key after it
	MailboxFirst  MailboxOp = 5 // -> the first key
)

// Flags of MailboxUpdate (BPF_ANY, BPF_NOEXIST and BPF_EXIST of linux/bpf.h).
const (
	MailboxAny    uint8 = 0
	MailboxAbsent uint8 = 1
	MailboxExists uint8 = 2
)

// MailboxWord is the value of RegMailboxCommand that runs op on the map with the
// given index in the image's map table.
func MailboxWord(op MailboxOp, flags uint8, index uint16) uint32 {
	return uint32(op)<<24 | uint32(flags)<<16 | uint32(index)
}

// SplitMailbox returns the parts of a mailbox command.
func SplitMailbox(v uint32) (op MailboxOp, flags uint8, index uint16) {
	return MailboxOp(v >> 24), uint8(v >> 16), uint16(v)
}

// MailboxResult says how a mailbox command ended. The values are error numbers of
// Linux (asm-generic/errno-base.h).
type MailboxResult uint32

const (
	MailboxOK         MailboxResult = 0
	MailboxNotAllowed MailboxResult = 1  // EPERM: the map is read-only
	MailboxNoEntry    MailboxResult = 2  // ENOENT: no such key, or no key after it
	MailboxFull       MailboxResult = 7  // E2BIG: no room for another key, as in Linux
	MailboxPresent    MailboxResult = 17 // EEXIST: MailboxAbsent, and the key is there
	MailboxNoProgram  MailboxResult = 19 // ENODEV: no image is in use
	MailboxBad        MailboxResult = 22 // EINVAL: no such operation, flag or map
)

var mailboxResults = [...]string{
	MailboxOK: "done", MailboxNotAllowed: "read-only map", MailboxNoEntry: "no such key",
	MailboxFull: "map full", MailboxPresent: "key present", MailboxNoProgram: "no program",
	MailboxBad: "bad command",
}

func (r MailboxResult) String() string { return nameOf(mailboxResults[:], r, "mailbox result") }
