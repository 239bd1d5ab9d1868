package processor

import "github.com/cilium/ebpf/asm"

// arithmeticCodes has the codes of an operation on 64 bits and on 32.
var arithmeticCodes = map[asm.ALUOp][2]code{
	asm.Mov:  {opMove, opMove32},
	asm.Add:  {opAdd, opAdd32},
	asm.Sub:  {opSub, opSub32},
	asm.Mul:  {opMul, opMul32},
	asm.Div:  {opDiv, opDiv32},
	asm.Mod:  {opMod, opMod32},
	asm.SDiv: {opSDiv, opSDiv32},
	asm.SMod: {opSMod, opSMod32},
	asm.Or:   {opOr, opOr32},
	asm.And:  {opAnd, opAnd32},
	asm.Xor:  {opXor, opXor32},
	asm.LSh:  {opLsh, opLsh32},
	asm.RSh:  {opRsh, opRsh32},
	asm.ArSh: {opArsh, opArsh32},
	asm.Neg:  {opNeg, opNeg32},

	asm.MovSX8:  {opSigned8, opSigned8to32},
	asm.MovSX16: {opSigned16, opSigned16to32},
	asm.MovSX32: {opSigned32, opTrap},
}

// arithmetic decodes instructions of the classes ALU64 and ALU.
func arithmetic(ins *asm.Instruction, wide bool) (op, error) {
	if !writable(ins.Dst) || !readable(ins.Src) {
		return op{}, ErrRegister
	}
	kind := ins.OpCode.ALUOp()
	if kind == asm.Swap {
		return swap(ins)
	}
	width := 0
	build := kind.Op
	if !wide {
		width, build = 1, kind.Op32
	}
	o := op{code: arithmeticCodes[kind][width], dst: uint8(ins.Dst), src: uint8(ins.Src)}
	source := ins.OpCode.Source()
	if o.code == opTrap || ins.OpCode != build(source) || ins.Offset != 0 {
		return op{}, ErrInstruction
	}
	if source == asm.RegSource {
		if ins.Constant != 0 || kind == asm.Neg {
			return op{}, ErrInstruction
		}
		return o, nil
	}
	if ins.Src != asm.R0 || !constant(ins.Constant) || !operand(kind, ins.Constant, wide) {
		return op{}, ErrInstruction
	}
	o.src, o.imm = zeroRegister, uint64(ins.Constant)
	if !wide {
		o.imm = uint64(uint32(ins.Constant))
		// With a constant whose upper bits are zero the wide operation does the
		// same, and has the faster code.
		switch kind {
		case asm.Mov:
			o.code = opMove
		case asm.And:
			o.code = opAnd
		}
	}
	return o, nil
}

// operand reports whether an operation takes the constant.
func operand(kind asm.ALUOp, v int64, wide bool) bool {
	switch kind {
	case asm.Div, asm.Mod, asm.SDiv, asm.SMod:
		return v != 0
	case asm.LSh, asm.RSh, asm.ArSh:
		return v >= 0 && (v < 32 || wide && v < 64)
	case asm.Neg:
		return v == 0
	case asm.MovSX8, asm.MovSX16, asm.MovSX32:
		return false // there is only the form with a register
	}
	return true
}

// swap decodes conversions of byte order. Class ALU: to little-endian, which is the
// order of this machine whatever it runs on, or big-endian; ALU64: the other order.
func swap(ins *asm.Instruction) (op, error) {
	if ins.Src != asm.R0 || ins.Offset != 0 {
		return op{}, ErrInstruction
	}
	o := op{dst: uint8(ins.Dst), src: uint8(ins.Dst)}
	little := false
	switch ins.OpCode {
	case asm.HostTo(asm.LE, ins.Dst, asm.Half).OpCode:
		little = true
	case asm.HostTo(asm.BE, ins.Dst, asm.Half).OpCode, asm.BSwap(ins.Dst, asm.Half).OpCode:
	default:
		return op{}, ErrInstruction
	}
	switch ins.Constant {
	case 16:
		o.code = opSwap16
		if little {
			o.code = opLow16
		}
	case 32:
		o.code = opSwap32
		if little {
			o.code = opMove32
		}
	case 64:
		o.code = opSwap64
		if little {
			o.code = opMove
		}
	default:
		return op{}, ErrInstruction
	}
	return o, nil
}
