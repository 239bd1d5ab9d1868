package checker

import (
	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/internal/abi"
)

// Bits of an opcode that are not its operation: the class, and where the second
// operand is.
const (
	classBits  asm.OpCode = 0x07
	sourceBits asm.OpCode = 0x08
)

var errOperation = "the processor has no such operation"

func decodeALU(ins *Instruction, a *asm.Instruction) *Refusal {
	ins.Form = FormALU
	ins.ALU = asm.ALUOp(a.OpCode &^ (classBits | sourceBits))
	ins.Register = a.OpCode&sourceBits != 0
	if a.Offset != 0 {
		return refuse(ErrField, "an arithmetic instruction has no offset")
	}
	if r := writable(ins.Dst); r != nil {
		return r
	}
	bits := int64(32)
	if ins.Wide {
		bits = 64
	}
	switch ins.ALU {
	case asm.Swap:
		return decodeSwap(ins)
	case asm.Neg:
		if ins.Register || ins.Src != 0 || ins.Constant != 0 {
			return refuse(ErrField, "a negation has one operand")
		}
		return nil
	case asm.MovSX8, asm.MovSX16, asm.MovSX32:
		if !ins.Register || ins.ALU == asm.MovSX32 && !ins.Wide {
			return refuse(ErrInstruction, "%s", errOperation)
		}
	case asm.Div, asm.SDiv, asm.Mod, asm.SMod:
		if !ins.Register && ins.Constant == 0 {
			return refuse(ErrField, "a division by the constant zero")
		}
	case asm.LSh, asm.RSh, asm.ArSh:
		if !ins.Register && (ins.Constant < 0 || ins.Constant >= bits) {
			return refuse(ErrField, "a shift of %d bits by %d", bits, ins.Constant)
		}
	case asm.Add, asm.Sub, asm.Mul, asm.Or, asm.And, asm.Xor, asm.Mov:
	default:
		return refuse(ErrInstruction, "%s", errOperation)
	}
	return oneOperand2(ins)
}

func decodeSwap(ins *Instruction) *Refusal {
	ins.Form = FormSwap
	// The processor is little-endian: to its own order is only a truncation.
	ins.Reverse = ins.Wide || ins.Register
	if ins.Wide && ins.Register {
		return refuse(ErrInstruction, "%s", errOperation)
	}
	if ins.Constant != 16 && ins.Constant != 32 && ins.Constant != 64 {
		return refuse(ErrField, "a swap of %d bits; 16, 32 and 64 are known", ins.Constant)
	}
	ins.Register = false
	if ins.Src != 0 {
		return refuse(ErrField, "a swap has one operand")
	}
	return nil
}

// oneOperand2 refuses a constant beside a register as second operand.
func oneOperand2(ins *Instruction) *Refusal {
	if ins.Register && ins.Constant != 0 || !ins.Register && ins.Src != 0 {
		return refuse(ErrField, "a constant and a register as second operand")
	}
	return nil
}

func decodeJump(ins *Instruction, a *asm.Instruction) *Refusal {
	op := a.OpCode &^ (classBits | sourceBits)
	ins.Jump = asm.JumpOp(op)
	ins.Register = a.OpCode&sourceBits != 0
	if op > 0xff {
		return refuse(ErrInstruction, "%s", errOperation)
	}
	switch ins.Jump {
	case asm.Ja:
		ins.Form = FormGoto
		unused := ins.Constant
		if !ins.Wide {
			unused, ins.Offset = int64(ins.Offset), int(ins.Constant)
		}
		if ins.Register || ins.Dst != 0 || ins.Src != 0 || unused != 0 {
			return refuse(ErrField, "a jump has no operands")
		}
		return nil
	case asm.Exit:
		ins.Form = FormExit
		if ins.Register || !ins.Wide || ins.Dst != 0 || ins.Src != 0 || ins.Constant != 0 || ins.Offset != 0 {
			return refuse(ErrField, "an exit has no operands")
		}
		return nil
	case asm.Call:
		return decodeCall(ins, a)
	case asm.JEq, asm.JNE, asm.JGT, asm.JGE, asm.JLT, asm.JLE, asm.JSGT, asm.JSGE, asm.JSLT, asm.JSLE, asm.JSet:
		ins.Form = FormBranch
		return oneOperand2(ins)
	}
	return refuse(ErrInstruction, "%s", errOperation)
}

func decodeCall(ins *Instruction, a *asm.Instruction) *Refusal {
	ins.Form = FormCall
	if ins.Register || !ins.Wide {
		return refuse(ErrInstruction, "%s", errOperation)
	}
	if a.Src != asm.R0 {
		return refuse(ErrHelper, "programs call helpers only, not functions of their own or of a kernel")
	}
	if ins.Dst != 0 || ins.Offset != 0 {
		return refuse(ErrField, "a call has no operands but the helper's number")
	}
	if _, ok := helpers[abi.Helper(ins.Constant)]; !ok {
		return refuse(ErrHelper, "helper %d is not one of the processor's", ins.Constant)
	}
	return nil
}

func decodeMemory(ins *Instruction, a *asm.Instruction) *Refusal {
	ins.Size = a.OpCode.Size().Sizeof()
	plain := a.OpCode <= 0xff && a.OpCode.Mode() == asm.MemMode
	switch class := a.OpCode.Class(); {
	case class == asm.LdXClass && (plain || a.OpCode <= 0xff && a.OpCode.Mode() == asm.MemSXMode):
		ins.Form = FormLoad
		ins.Extend = !plain
		if ins.Extend && ins.Size == 8 {
			return refuse(ErrInstruction, "%s", errOperation)
		}
		if ins.Constant != 0 {
			return refuse(ErrField, "a load has no constant")
		}
		return writable(ins.Dst)
	case class == asm.StClass && plain:
		ins.Form = FormStoreImm
		if ins.Src != 0 {
			return refuse(ErrField, "a constant and a register to store")
		}
		return nil
	case class == asm.StXClass && plain:
		ins.Form = FormStore
		ins.Register = true
		if ins.Constant != 0 {
			return refuse(ErrField, "a constant and a register to store")
		}
		return nil
	case class == asm.StXClass && a.OpCode.Mode() == asm.AtomicMode:
		return decodeAtomic(ins, a)
	}
	return refuse(ErrInstruction, "%s", errOperation)
}

func decodeAtomic(ins *Instruction, a *asm.Instruction) *Refusal {
	ins.Form = FormAtomic
	ins.Register = true
	ins.Atomic = a.OpCode.AtomicOp()
	switch ins.Atomic {
	case asm.AddAtomic, asm.FetchAdd, asm.AndAtomic, asm.FetchAnd, asm.OrAtomic, asm.FetchOr,
		asm.XorAtomic, asm.FetchXor, asm.Xchg, asm.CmpXchg:
	default:
		return refuse(ErrInstruction, "%s", errOperation)
	}
	// Decoding leaves the operation in the constant too, where it is encoded.
	if a.OpCode != ins.Atomic.OpCode(a.OpCode.Size()) || ins.Constant != 0 && ins.Constant != int64(ins.Atomic>>8) {
		return refuse(ErrInstruction, "atomic operations have 4 or 8 bytes, and no other flags")
	}
	if register, ok := ins.fetches(); ok {
		return writable(register)
	}
	return nil
}
