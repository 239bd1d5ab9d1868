package checker

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/internal/abi"
)

// Reasons of a Refusal, for errors.Is.
var (
	// ErrHook: there is no such hook.
	ErrHook = errors.New("unknown hook")
	// ErrMap: a map's description is outside the limits of package abi.
	ErrMap = errors.New("bad map")
	// ErrSize: no instructions, or more than abi.MaxInstructions.
	ErrSize = errors.New("bad program size")
	// ErrInstruction: an operation that the processor does not have.
	ErrInstruction = errors.New("unknown instruction")
	// ErrField: a field of an instruction has a value that means nothing.
	ErrField = errors.New("bad instruction field")
	// ErrRegister: no such register, or a write of R10.
	ErrRegister = errors.New("bad register")
	// ErrHelper: a call of what is not one of the processor's helpers.
	ErrHelper = errors.New("unknown helper")
	// ErrJump: a jump to where no instruction starts.
	ErrJump = errors.New("bad jump target")
	// ErrUnreachable: no path leads to the instruction.
	ErrUnreachable = errors.New("unreachable instruction")
	// ErrNoExit: the instructions end without an exit.
	ErrNoExit = errors.New("no exit")
	// ErrUninitialized: a register or bytes of the stack are read that may
	// never have been written.
	ErrUninitialized = errors.New("read of what was never written")
	// ErrBounds: an access that may be outside of its memory.
	ErrBounds = errors.New("access out of bounds")
	// ErrAlignment: an access of the context, of the stack or by an atomic
	// operation that may not be aligned to its size.
	ErrAlignment = errors.New("misaligned access")
	// ErrReadOnly: a store to what programs may only read.
	ErrReadOnly = errors.New("store to read-only memory")
	// ErrNull: a use of a pointer that may be null.
	ErrNull = errors.New("pointer may be null")
	// ErrPointer: a pointer where a number is wanted, or arithmetic or a
	// comparison that pointers do not have.
	ErrPointer = errors.New("bad use of a pointer")
	// ErrNotPointer: a number or the wrong kind of pointer where a pointer is
	// wanted.
	ErrNotPointer = errors.New("not a pointer to memory")
	// ErrLeak: a pointer would be stored outside of the stack, or be the answer.
	ErrLeak = errors.New("pointer leaves the program")
	// ErrArgument: a helper wants another argument.
	ErrArgument = errors.New("bad helper argument")
	// ErrEndless: a loop whose end cannot be proved.
	ErrEndless = errors.New("endless loop")
	// ErrBudget: a path may take more instructions than the hook's budget.
	ErrBudget = errors.New("over the hook's budget")
	// ErrComplex: the proof would take more work than the checker does.
	ErrComplex = errors.New("too complex to check")
)

// Refusal is the error of Check.
type Refusal struct {
	Hook abi.Hook
	// Instruction is the index of the instruction in 8-byte slots, as
	// disassemblers print it; -1 if the reason lies in no instruction.
	Instruction int
	Text        string // the instruction; empty if there is none
	Line        string // its source line, "file:line: text", if it is known
	Reason      error  // one of those above
	Detail      string // what exactly, in words
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
func refuse(reason error, format string, args ...any) *Refusal {
	return &Refusal{Instruction: -1, Reason: reason, Detail: fmt.Sprintf(format, args...)}
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
		r.Line = SourceLine(&p.Instructions[i])
	}
	return r
}

// SourceLine returns the source line that starts with the instruction, as
// "file:line: text", or "" if none does. What cilium/ebpf reads from an image's debug
// information also knows the file; a comment is its text alone.
func SourceLine(ins *asm.Instruction) string {
	source := ins.Source()
	if source == nil {
		return ""
	}
	text := strings.TrimSpace(fmt.Sprintf("%v", source))
	if text == "<nil>" {
		return ""
	}
	if at, ok := source.(interface {
		FileName() string
		LineNumber() uint32
	}); ok {
		return fmt.Sprintf("%s:%d: %s", at.FileName(), at.LineNumber(), text)
	}
	return text
}
