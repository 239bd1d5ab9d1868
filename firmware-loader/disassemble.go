package firmware

import (
	"fmt"
	"io"
	"strings"

	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/firmware-loader/internal/checker"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

// Disassemble writes the programs as text, with the lines of their source where
// the file has them. Instructions are numbered in 8-byte slots, as refusals and
// faults count them.
func (s *Spec) Disassemble(w io.Writer) error {
	var b strings.Builder
	for h := range abi.Hooks {
		if p, ok := s.Program(h); ok {
			disassemble(&b, p)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func disassemble(b *strings.Builder, p abi.Program) {
	fmt.Fprintf(b, "%s: %d instructions\n", p.Hook, p.Instructions.Size()/asm.InstructionSize)
	iter, last := p.Instructions.Iterate(), ""
	for iter.Next() {
		ins, at := iter.Ins, int64(iter.Offset)
		// Compilers repeat a line for each column.
		if line := checker.SourceLine(ins); line != "" && line != last {
			fmt.Fprintf(b, "; %s\n", line)
			last = line
		}
		fmt.Fprintf(b, "%5d: %v", at, *ins)
		switch {
		case ins.IsLoadFromMap():
			if m := int(uint32(ins.Constant)); m < len(p.Maps) {
				fmt.Fprintf(b, " <%s>", p.Maps[m].Name)
			}
		case ins.IsBuiltinCall():
			fmt.Fprintf(b, " <%s>", abi.Helper(ins.Constant))
		case isJump(ins):
			fmt.Fprintf(b, " <%d>", at+int64(ins.Width())+jumpOffset(ins))
		}
		b.WriteByte('\n')
	}
}

// isJump reports whether an instruction may go on elsewhere.
func isJump(ins *asm.Instruction) bool {
	op := ins.OpCode.JumpOp()
	return ins.OpCode.Class().IsJump() && op != asm.Call && op != asm.Exit
}

// jumpOffset is in slots, from the instruction behind. Long jumps have it in the
// constant (RFC 9669 section 4.3).
func jumpOffset(ins *asm.Instruction) int64 {
	if ins.OpCode.Class() == asm.Jump32Class && ins.OpCode.JumpOp() == asm.Ja {
		return ins.Constant
	}
	return int64(ins.Offset)
}
