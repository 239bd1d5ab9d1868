package processor

import (
	"errors"
	"fmt"

	"github.com/trapeze-nic/trapeze/firmware-loader/abi"
)

// Reasons for which Compile refuses a program, as errors.Is finds them.
var (
	// ErrInstruction: the processor has no such instruction, or a field that the
	// instruction does not use is not zero.
	ErrInstruction = errors.New("unknown instruction")
	// ErrRegister: there is no such register, or it is R10, which is read-only.
	ErrRegister = errors.New("register cannot be used")
	// ErrJump: the target is not the start of an instruction of the program.
	ErrJump = errors.New("jump out of the program")
	// ErrHelper: the processor has no such helper.
	ErrHelper = errors.New("unknown helper")
	// ErrMap: the image has no such map, or not that much of it.
	ErrMap = errors.New("no such map")
	// ErrLength: the program is empty, too long, or runs out of its end.
	ErrLength = errors.New("bad length")
	// ErrStorage: the memory for a map does not suit it.
	ErrStorage = errors.New("bad map storage")
)

// CompileError is a program that the processor cannot run.
type CompileError struct {
	Hook        abi.Hook
	Instruction int    // number of the 8-byte slot, counted from 0
	Text        string // the instruction
	Reason      error  // one of the above
}

func (e *CompileError) Error() string {
	return fmt.Sprintf("%v: instruction %d (%s): %v", e.Hook, e.Instruction, e.Text, e.Reason)
}

// Unwrap returns Reason.
func (e *CompileError) Unwrap() error { return e.Reason }

// Reasons for which a run is stopped.
var (
	// ErrBudget: the run took more instructions than the hook allows.
	ErrBudget = errors.New("budget of instructions used up")
	// ErrTrap: a load, store or helper reached outside of what the program may use.
	ErrTrap = errors.New("access outside")
)

// Fault is a run that was stopped. The program has no answer; what it wrote until
// then stays written.
type Fault struct {
	Hook abi.Hook
	// Instruction is the 8-byte slot at which it was noticed, counted from 0. A
	// budget is looked at where a program jumps back or ends.
	Instruction int
	Reason      error // ErrBudget or ErrTrap
}

func (f *Fault) Error() string {
	return fmt.Sprintf("%v: instruction %d: %v", f.Hook, f.Instruction, f.Reason)
}

// Unwrap returns Reason.
func (f *Fault) Unwrap() error { return f.Reason }
