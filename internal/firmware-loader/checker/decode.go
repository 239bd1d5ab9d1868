package checker

import (
	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/firmware-loader/abi"
)

// Bits of an opcode that are not its operation: the class, and where the second
// operand is.
const (
	classBits  asm.OpCode = 0x07
	sourceBits asm.OpCode = 0x08
)

var errOperation = "the processor has no such operation"

func decodeALU(ins *instruction, a *asm.Instruction) *Refusal {
	ins.form = formALU
	ins.alu = asm.ALUOp(a.OpCode &^ (classBits | sourceBits))
	ins.register = a.OpCode&sourceBits != 0
	if a.Offset != 0 {
		return refuse(ErrField, "an arithmetic instruction has no offset")
	}
	if r := writable(ins.dst); r != nil {
		return r
	}
	bits := int64(32)
	if ins.wide {
		bits = 64
	}
	switch ins.alu {
	case asm.Swap:
		return decodeSwap(ins)
	case asm.Neg:
		if ins.register || ins.src != 0 || ins.imm != 0 {
			return refuse(ErrField, "a negation has one operand")
		}
		return nil
	case asm.MovSX8, asm.MovSX16, asm.MovSX32:
		if !ins.register || ins.alu == asm.MovSX32 && !ins.wide {
			return refuse(ErrInstruction, "%s", errOperation)
		}
	case asm.Div, asm.SDiv, asm.Mod, asm.SMod:
		if !ins.register && ins.imm == 0 {
			return refuse(ErrField, "a division by the constant zero")
		}
	case asm.LSh, asm.RSh, asm.ArSh:
		if !ins.register && (ins.imm < 0 || ins.imm >= bits) {
			return refuse(ErrField, "a shift of %d bits by %d", bits, ins.imm)
		}
	case asm.Add, asm.Sub, asm.Mul, asm.Or, asm.And, asm.Xor, asm.Mov:
	default:
		return refuse(ErrInstruction, "%s", errOperation)
	}
	return oneOperand2(ins)
}

func decodeSwap(ins *instruction) *Refusal {
	ins.form = formSwap
	// The processor is little-endian: to its own order is only a truncation.
	ins.reverse = ins.wide || ins.register
	if ins.wide && ins.register {
		return refuse(ErrInstruction, "%s", errOperation)
	}
	if ins.imm != 16 && ins.imm != 32 && ins.imm != 64 {
		return refuse(ErrField, "a swap of %d bits; 16, 32 and 64 are known", ins.imm)
	}
	ins.register = false
	if ins.src != 0 {
		return refuse(ErrField, "a swap has one operand")
	}
	return nil
}

// oneOperand2 refuses a constant beside a register as second operand.
func oneOperand2(ins *instruction) *Refusal {
	if ins.register && ins.imm != 0 || !ins.register && ins.src != 0 {
		return refuse(ErrField, "a constant and a register as second operand")
	}
	return nil
}

func decodeJump(ins *instruction, a *asm.Instruction) *Refusal {
	op := a.OpCode &^ (classBits | sourceBits)
	ins.jump = asm.JumpOp(op)
	ins.register = a.OpCode&sourceBits != 0
	if op > 0xff {
		return refuse(ErrInstruction, "%s", errOperation)
	}
	switch ins.jump {
	case asm.Ja:
		ins.form = formGoto
		unused := ins.imm
		if !ins.wide {
			unused, ins.off = int64(ins.off), int(ins.imm)
		}
		if ins.register || ins.dst != 0 || ins.src != 0 || unused != 0 {
			return refuse(ErrField, "a jump has no operands")
		}
		return nil
	case asm.Exit:
		ins.form = formExit
		if ins.register || !ins.wide || ins.dst != 0 || ins.src != 0 || ins.imm != 0 || ins.off != 0 {
			return refuse(ErrField, "an exit has no operands")
		}
		return nil
	case asm.Call:
		return decodeCall(ins, a)
	case asm.JEq, asm.JNE, asm.JGT, asm.JGE, asm.JLT, asm.JLE, asm.JSGT, asm.JSGE, asm.JSLT, asm.JSLE, asm.JSet:
		ins.form = formBranch
		return oneOperand2(ins)
	}
	return refuse(ErrInstruction, "%s", errOperation)
}

func decodeCall(ins *instruction, a *asm.Instruction) *Refusal {
	ins.form = formCall
	if ins.register || !ins.wide {
		return refuse(ErrInstruction, "%s", errOperation)
	}
	if a.Src != asm.R0 {
		return refuse(ErrHelper, "programs call helpers only, not functions of their own or of a kernel")
	}
	if ins.dst != 0 || ins.off != 0 {
		return refuse(ErrField, "a call has no operands but the helper's number")
	}
	if _, ok := helpers[abi.Helper(ins.imm)]; !ok {
		return refuse(ErrHelper, "helper %d is not one of the processor's", ins.imm)
	}
	return nil
}

// decodeMemory decodes the classes LDX, ST and STX.
func decodeMemory(ins *instruction, a *asm.Instruction) *Refusal {
	ins.size = a.OpCode.Size().Sizeof()
	plain := a.OpCode <= 0xff && a.OpCode.Mode() == asm.MemMode
	switch class := a.OpCode.Class(); {
	case class == asm.LdXClass && (plain || a.OpCode <= 0xff && a.OpCode.Mode() == asm.MemSXMode):
		ins.form = formLoad
		ins.extend = !plain
		if ins.extend && ins.size == 8 {
			return refuse(ErrInstruction, "%s", errOperation)
		}
		if ins.imm != 0 {
			return refuse(ErrField, "a load has no constant")
		}
		return writable(ins.dst)
	case class == asm.StClass && plain:
		ins.form = formStoreImm
		if ins.src != 0 {
			return refuse(ErrField, "a constant and a register to store")
		}
		return nil
	case class == asm.StXClass && plain:
		ins.form = formStore
		ins.register = true
		if ins.imm != 0 {
			return refuse(ErrField, "a constant and a register to store")
		}
		return nil
	case class == asm.StXClass && a.OpCode.Mode() == asm.AtomicMode:
		return decodeAtomic(ins, a)
	}
	return refuse(ErrInstruction, "%s", errOperation)
}

func decodeAtomic(ins *instruction, a *asm.Instruction) *Refusal {
	ins.form = formAtomic
	ins.register = true
	ins.atomic = a.OpCode.AtomicOp()
	switch ins.atomic {
	case asm.AddAtomic, asm.FetchAdd, asm.AndAtomic, asm.FetchAnd, asm.OrAtomic, asm.FetchOr,
		asm.XorAtomic, asm.FetchXor, asm.Xchg, asm.CmpXchg:
	default:
		return refuse(ErrInstruction, "%s", errOperation)
	}
	// Decoding leaves the operation in the constant too, where it is encoded.
	if a.OpCode != ins.atomic.OpCode(a.OpCode.Size()) || ins.imm != 0 && ins.imm != int64(ins.atomic>>8) {
		return refuse(ErrInstruction, "atomic operations have 4 or 8 bytes, and no other flags")
	}
	if register, ok := ins.fetches(); ok {
		return writable(register)
	}
	return nil
}
