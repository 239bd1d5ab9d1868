package flat

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf/asm"
)

// EncodeInstructions returns the 8-byte BPF encoding (RFC 9669) of a program
// without symbolic references. It refuses instructions that have no encoding, or
// that would come back from DecodeInstructions as others. Metadata is not encoded.
func EncodeInstructions(insns asm.Instructions) ([]byte, error) {
	var b bytes.Buffer
	b.Grow(len(insns) * asm.InstructionSize)
	for i, ins := range insns {
		if atomic(ins) {
			// The assembler leaves the operation out of the constant, where the
			// encoding has it.
			ins.Constant = atomicConstant(ins)
		}
		if _, err := ins.Marshal(&b, binary.LittleEndian); err != nil {
			return nil, fmt.Errorf("instruction %d: %w", i, err)
		}
	}
	back, err := DecodeInstructions(b.Bytes())
	if err != nil {
		return nil, err
	}
	for i, ins := range insns {
		if i >= len(back) || !same(back[i], ins) {
			return nil, fmt.Errorf("instruction %d: %v cannot be encoded", i, ins)
		}
	}
	return b.Bytes(), nil
}

// DecodeInstructions is the inverse of EncodeInstructions. It refuses bytes that
// have no meaning: fields that are used for nothing and are not zero, halves of
// 64-bit loads.
func DecodeInstructions(b []byte) (asm.Instructions, error) {
	if len(b)%asm.InstructionSize != 0 {
		return nil, fmt.Errorf("%d bytes are no multiple of %d", len(b), asm.InstructionSize)
	}
	insns := make(asm.Instructions, 0, len(b)/asm.InstructionSize)
	insns, err := asm.AppendInstructions(insns, bytes.NewReader(b), binary.LittleEndian, "linux")
	if err != nil {
		return nil, err
	}
	for i, ins := range insns {
		// The assembler takes the offsets that select an operation into the
		// opcode, and drops others when it encodes. Negative helpers are marks of
		// compilers.
		if ins.OpCode.Class().IsALU() && ins.Offset != 0 || atomic(ins) && ins.Constant != atomicConstant(ins) ||
			ins.IsBuiltinCall() && ins.Constant < 0 {
			return nil, fmt.Errorf("instruction %d: %v: offset %d, constant %#x", i, ins, ins.Offset, ins.Constant)
		}
	}
	return insns, nil
}

// atomic reports whether the constant of an instruction is an atomic operation.
func atomic(ins asm.Instruction) bool {
	return ins.OpCode.Class() == asm.StXClass && ins.OpCode.Mode() == asm.AtomicMode
}

func atomicConstant(ins asm.Instruction) int64 { return int64(ins.OpCode.AtomicOp() >> 8) }

func same(a, b asm.Instruction) bool {
	return a.OpCode == b.OpCode && a.Dst == b.Dst && a.Src == b.Src && a.Offset == b.Offset &&
		(a.Constant == b.Constant || atomic(a))
}
