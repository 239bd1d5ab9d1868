package load

import (
	"fmt"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/flat"
	"github.com/trapeze-nic/trapeze/internal/abi"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// Reasons why a load or a rollback fails, as errors.Is finds them, and their VIA codes.
var (
	// ErrGone: registers read as all ones; the NIC was removed or lost power.
	ErrGone = descriptors.ErrDevice.Finer("the NIC does not answer")
	// ErrRegisters: the NIC's registers contradict the data sheet.
	ErrRegisters = descriptors.ErrDevice.Finer("impossible value in a register")
	// ErrReadBack: SRAM does not hold what was written.
	ErrReadBack = descriptors.ErrDevice.Finer("SRAM reads back wrong")
	// ErrNotReady: the NIC neither ran the image nor refused it in time.
	ErrNotReady = descriptors.ErrTimeout.Finer("the NIC processor is not ready in time")
	// ErrReport: what runs is not what was loaded.
	ErrReport = descriptors.ErrDevice.Finer("the NIC reports another image")
	// ErrNoPrevious: there is no image to go back to.
	ErrNoPrevious = descriptors.ErrInvalidState.Finer("no previous image")
	// ErrImage: the image cannot be loaded into any NIC.
	ErrImage = descriptors.ErrInvalidParameter.Finer("bad image")
	// ErrABI, ErrDevice and ErrSRAM: the image is for other NICs. Nothing was
	// written.
	ErrABI    = flat.ErrABI
	ErrDevice = flat.ErrDevice
	ErrSRAM   = flat.ErrSRAM
)

// Steps of a load, in their order: the operation of the [failure.Error] in an Error.
const (
	stepIdentify = "look at the processor"
	stepWrite    = "write the image"
	stepReadBack = "read the image back"
	stepHalt     = "halt the processor"
	stepEntry    = "set the entry"
	stepRun      = "start the image"
	stepReady    = "wait for the image"
	stepReport   = "compare what runs"
)

// Outcome says which image runs after a failure.
type Outcome string

// Outcomes.
const (
	// OutcomeUntouched: what ran before was never interrupted.
	OutcomeUntouched Outcome = "what ran before still runs"
	// OutcomeRestored: the image that ran before was started again.
	OutcomeRestored Outcome = "the image that ran before runs again"
	// OutcomeBuiltIn: the built-in behaviour applies.
	OutcomeBuiltIn Outcome = "the built-in behaviour applies"
	// OutcomeUnknown: the NIC could not be reached any more. It comes up with its
	// built-in behaviour when it gets power again.
	OutcomeUnknown Outcome = "the NIC cannot be reached"
)

// Error is a load or rollback that failed.
type Error struct {
	Err     error // a *failure.Error, whose operation is the step
	Outcome Outcome
	// Restore is the error of putting the previous image back; nil
	// if nothing did.
	Restore error
}

func (e *Error) Error() string {
	s := fmt.Sprintf("%v; %s", e.Err, e.Outcome)
	if e.Restore != nil {
		s += fmt.Sprintf(" (putting the previous image back: %v)", e.Restore)
	}
	return s
}

// Unwrap returns what failed, and what failed after it.
func (e *Error) Unwrap() []error {
	if e.Restore == nil {
		return []error{e.Err}
	}
	return []error{e.Err, e.Restore}
}

// ProcessorError is an image that the NIC refused or had to stop.
type ProcessorError struct {
	Fault datasheet.ProcessorFault
	// Hook and Instruction are where; they mean something for refused programs,
	// budgets and traps.
	Hook        abi.Hook
	Instruction uint32
}

func (e *ProcessorError) Error() string {
	s := "the NIC processor reports: " + e.Fault.String()
	switch e.Fault {
	case datasheet.ProcessorFaultRefused, datasheet.ProcessorFaultBudget, datasheet.ProcessorFaultTrap:
		s += fmt.Sprintf(", %s, instruction %d", e.Hook, e.Instruction)
	}
	return s
}

// Unwrap returns descriptors.ErrDevice: the device reports it.
func (e *ProcessorError) Unwrap() error { return descriptors.ErrDevice }
