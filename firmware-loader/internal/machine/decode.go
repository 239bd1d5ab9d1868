package machine

import (
	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/firmware-loader/internal/checker"
)

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

// jumpCodes has the codes of a condition on 64 bits and on 32.
var jumpCodes = map[asm.JumpOp][2]code{
	asm.JEq:  {opJumpEQ, opJumpEQ32},
	asm.JNE:  {opJumpNE, opJumpNE32},
	asm.JGT:  {opJumpGT, opJumpGT32},
	asm.JGE:  {opJumpGE, opJumpGE32},
	asm.JLT:  {opJumpLT, opJumpLT32},
	asm.JLE:  {opJumpLE, opJumpLE32},
	asm.JSet: {opJumpSet, opJumpSet32},
	asm.JSGT: {opJumpSGT, opJumpSGT32},
	asm.JSGE: {opJumpSGE, opJumpSGE32},
	asm.JSLT: {opJumpSLT, opJumpSLT32},
	asm.JSLE: {opJumpSLE, opJumpSLE32},
}

// Codes by the bytes of an access.
var (
	loads  = map[int]code{1: opLoad8, 2: opLoad16, 4: opLoad32, 8: opLoad64}
	stores = map[int]code{1: opStore8, 2: opStore16, 4: opStore32, 8: opStore64}
)

// swaps has the codes that only keep the low bits, by their number, and those that
// reverse them as well.
var swaps = map[int64][2]code{
	16: {opLow16, opSwap16},
	32: {opMove32, opSwap32},
	64: {opMove, opSwap64},
}

func opOf(i int, ins *checker.Instruction) op {
	narrow := 1
	if ins.Wide {
		narrow = 0
	}
	// The second operand of operations and conditions, and the jump's distance.
	o := op{dst: ins.Dst, src: ins.Src, aux: int32(ins.Target - i - 1)}
	if !ins.Register {
		o.src, o.imm = zeroRegister, uint64(ins.Constant)
	}
	switch ins.Form {
	case checker.FormBranch:
		o.code = jumpCodes[ins.Jump][narrow]
		return o
	case checker.FormGoto:
		return op{code: opJump, aux: o.aux}
	}
	o.aux = 0
	switch ins.Form {
	case checker.FormALU:
		return arithmetic(o, ins, narrow)
	case checker.FormSwap:
		reversed := 0
		if ins.Reverse {
			reversed = 1
		}
		return op{code: swaps[ins.Constant][reversed], dst: ins.Dst, src: ins.Dst}
	case checker.FormConst:
		o.code = opMove
	case checker.FormMap:
		o.code, o.imm = opMove, regionHandles<<regionShift+uint64(ins.Map)
	case checker.FormMapValue:
		o.code, o.imm = opMove, (regionMaps+uint64(ins.Map))<<regionShift+uint64(ins.MapOffset)
	case checker.FormLoad:
		o.code, o.src, o.imm = loads[ins.Size], ins.Src, uint64(ins.Offset)
		if ins.Extend {
			o.code, o.aux = opLoadSigned, int32(ins.Size)
		}
	case checker.FormStore:
		return op{code: stores[ins.Size], dst: ins.Src, src: ins.Dst, imm: uint64(ins.Offset)}
	case checker.FormStoreImm:
		return op{code: stores[ins.Size], dst: zeroRegister, src: ins.Dst, imm: uint64(ins.Offset), aux: int32(ins.Constant)}
	case checker.FormAtomic:
		o = op{code: opAtomic, dst: ins.Src, src: ins.Dst, imm: uint64(ins.Offset), aux: int32(ins.Atomic)}
		if ins.Size == 8 {
			o.aux |= atomicWide
		}
	case checker.FormCall:
		o.code = opCall
	case checker.FormExit:
		return op{code: opExit}
	}
	return o
}

func arithmetic(o op, ins *checker.Instruction, narrow int) op {
	o.code = arithmeticCodes[ins.ALU][narrow]
	if !ins.Wide && !ins.Register {
		o.imm = uint64(uint32(ins.Constant))
		// With a constant whose upper bits are zero the wide operation does the
		// same, and has the faster code.
		switch ins.ALU {
		case asm.Mov:
			o.code = opMove
		case asm.And:
			o.code = opAnd
		}
	}
	return o
}
