package checker

import (
	"fmt"
	"strings"

	"github.com/trapeze-nic/trapeze/internal/abi"
)

// reason is an error that is its words in JSON, too.
type reason string

func (r reason) Error() string { return string(r) }

// Reasons of a Refusal, for errors.Is.
var (
	// ErrHook: there is no such hook.
	ErrHook = reason("unknown hook")
	// ErrMap: a map's description is outside the limits of package abi.
	ErrMap = reason("bad map")
	// ErrSize: no instructions, or more than abi.MaxInstructions.
	ErrSize = reason("bad program size")
	// ErrInstruction: an operation that the processor does not have.
	ErrInstruction = reason("unknown instruction")
	// ErrField: a field of an instruction has a value that means nothing.
	ErrField = reason("bad instruction field")
	// ErrRegister: no such register, or a write of R10.
	ErrRegister = reason("bad register")
	// ErrHelper: a call of what is not one of the processor's helpers.
	ErrHelper = reason("unknown helper")
	// ErrJump: a jump to where no instruction starts.
	ErrJump = reason("bad jump target")
	// ErrUnreachable: no path leads to the instruction.
	ErrUnreachable = reason("unreachable instruction")
	// ErrNoExit: the instructions end without an exit.
	ErrNoExit = reason("no exit")
	// ErrUninitialized: a register or bytes of the stack are read that may
	// never have been written.
	ErrUninitialized = reason("read of what was never written")
	// ErrBounds: an access that may be outside of its memory.
	ErrBounds = reason("access out of bounds")
	// ErrAlignment: an access of the context, of the stack or by an atomic
	// operation that may not be aligned to its size.
	ErrAlignment = reason("misaligned access")
	// ErrReadOnly: a store to what programs may only read.
	ErrReadOnly = reason("store to read-only memory")
	// ErrNull: a use of a pointer that may be null.
	ErrNull = reason("pointer may be null")
	// ErrPointer: a pointer where a number is wanted, or arithmetic or a
	// comparison that pointers do not have.
	ErrPointer = reason("bad use of a pointer")
	// ErrNotPointer: a number or the wrong kind of pointer where a pointer is
	// wanted.
	ErrNotPointer = reason("not a pointer to memory")
	// ErrLeak: a pointer would be stored outside of the stack, or be the answer.
	ErrLeak = reason("pointer leaves the program")
	// ErrArgument: a helper wants another argument.
	ErrArgument = reason("bad helper argument")
	// ErrEndless: a loop whose end cannot be proved.
	ErrEndless = reason("endless loop")
	// ErrBudget: a path may take more instructions than the hook's budget.
	ErrBudget = reason("over the hook's budget")
	// ErrComplex: the proof would take more work than the checker does.
	ErrComplex = reason("too complex to check")
)

// Refusal is the error of Check.
type Refusal struct {
	Hook abi.Hook `json:"-"`
	// Instruction is the index of the instruction in 8-byte slots, as
	// disassemblers print it; -1 if the reason lies in no instruction.
	Instruction int    `json:"instruction" help:"8-byte slot, -1 for none"`
	Text        string `json:"text,omitempty"` // the instruction; empty if there is none
	Line        string `json:"line,omitempty"` // its source line, "file:line: text", if it is known
	Reason      error  `json:"reason"`         // one of those above
	Detail      string `json:"detail"`         // what exactly, in words
}

func (r *Refusal) Error() string {
	var b strings.Builder
	b.WriteString(r.Hook.String())
	if r.Instruction >= 0 {
		fmt.Fprintf(&b, ": instruction %d (%s)", r.Instruction, r.Text)
	}
	if r.Line != "" {
		fmt.Fprintf(&b, ": %s", r.Line)
	}
	fmt.Fprintf(&b, ": %v: %s", r.Reason, r.Detail)
	return b.String()
}

func (r *Refusal) Unwrap() error { return r.Reason }

// refuse returns a refusal that does not say yet where.
func refuse(why error, format string, args ...any) *Refusal {
	return &Refusal{Instruction: -1, Reason: why, Detail: fmt.Sprintf(format, args...)}
}

// locate says in r that it is about the instruction with that index.
func (r *Refusal) locate(p *abi.Program, index int) *Refusal {
	r.Instruction = 0
	for i := range index {
		r.Instruction += int(p.Instructions[i].Width())
	}
	r.Text = fmt.Sprintf("%v", p.Instructions[index])
	// A compiler marks the first instruction of each line.
	for i := index; i >= 0 && r.Line == ""; i-- {
		if source := p.Instructions[i].Source(); source != nil {
			r.Line = source.String()
		}
	}
	return r
}
