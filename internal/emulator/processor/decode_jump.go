package processor

import (
	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/firmware-loader/abi"
)

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

// jump decodes instructions of the classes JMP and JMP32.
func (d *decoder) jump(i int, ins *asm.Instruction) (op, error) {
	if ins.OpCode > 0xff {
		return op{}, ErrInstruction
	}
	if !readable(ins.Dst) || !readable(ins.Src) {
		return op{}, ErrRegister
	}
	wide := ins.OpCode.Class() == asm.JumpClass
	kind, source := asm.JumpOp(ins.OpCode&0xf0), ins.OpCode.Source()
	switch {
	case kind == asm.Ja:
		return d.always(i, ins, wide, source)
	case kind == asm.Exit && wide:
		if source != asm.ImmSource || ins.Dst != 0 || ins.Src != 0 || ins.Offset != 0 || ins.Constant != 0 {
			return op{}, ErrInstruction
		}
		return op{code: opExit}, nil
	case kind == asm.Call && wide:
		return call(ins, source)
	}
	width := 0
	if !wide {
		width = 1
	}
	codes, ok := jumpCodes[kind]
	if !ok {
		return op{}, ErrInstruction
	}
	o := op{code: codes[width], dst: uint8(ins.Dst), src: uint8(ins.Src)}
	switch {
	case source == asm.RegSource && ins.Constant == 0:
	case source == asm.ImmSource && ins.Src == asm.R0 && constant(ins.Constant):
		o.src, o.imm = zeroRegister, uint64(ins.Constant)
	default:
		return op{}, ErrInstruction
	}
	var err error
	o.aux, err = d.distance(i, int64(ins.Offset))
	return o, err
}

// always decodes the two forms of the unconditional jump.
func (d *decoder) always(i int, ins *asm.Instruction, wide bool, source asm.Source) (o op, err error) {
	offset, other := int64(ins.Offset), ins.Constant
	if !wide {
		offset, other = other, offset
	}
	if source != asm.ImmSource || ins.Dst != 0 || ins.Src != 0 || other != 0 || !constant(offset) {
		return op{}, ErrInstruction
	}
	o.code = opJump
	o.aux, err = d.distance(i, offset)
	return o, err
}

// distance turns that of a jump in slots into one in ops.
func (d *decoder) distance(i int, offset int64) (int32, error) {
	target := int64(d.slots[i]) + 1 + offset
	if target < 0 || target >= int64(len(d.starts)) || d.starts[target] < 0 {
		return 0, ErrJump
	}
	return d.starts[target] - int32(i) - 1, nil
}

func call(ins *asm.Instruction, source asm.Source) (op, error) {
	if source != asm.ImmSource || ins.Dst != 0 || ins.Offset != 0 || !constant(ins.Constant) {
		return op{}, ErrInstruction
	}
	if ins.Src != asm.R0 {
		return op{}, ErrHelper // a function of the program, or of a kernel
	}
	switch abi.Helper(ins.Constant) {
	case abi.HelperMapLookup, abi.HelperMapUpdate, abi.HelperMapDelete, abi.HelperTime:
		return op{code: opCall, src: zeroRegister, imm: uint64(ins.Constant)}, nil
	}
	return op{}, ErrHelper
}
