package checker

import (
	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/firmware-loader/abi"
)

const (
	slotSize  = asm.InstructionSize
	registers = 11 // R0 to R10
	frame     = 10 // R10, the end of the stack
)

// form is what an instruction does, as far as it decides which fields count.
type form uint8

const (
	formALU      form = iota
	formSwap          // of bytes
	formConst         // 64-bit load of a constant
	formMap           // load of a map
	formMapValue      // load of an address in a map's only value
	formLoad          // from memory
	formStore         // of a register
	formStoreImm      // of a constant
	formAtomic        // read, modify, write
	formGoto          // always
	formBranch        // on a condition
	formCall          // of a helper
	formExit          // from the program
)

// instruction is a decoded instruction: its encoding is valid, and it is one that
// the processor has.
type instruction struct {
	form      form
	alu       asm.ALUOp
	jump      asm.JumpOp
	atomic    asm.AtomicOp
	wide      bool // computes or compares 64 bits rather than 32
	register  bool // the second operand is src rather than imm
	extend    bool // a load that extends the sign
	reverse   bool // a swap that exchanges bytes, rather than only dropping those above
	dst, src  uint8
	size      int // bytes of a memory access
	off       int // of a memory access
	imm       int64
	mapIndex  int
	mapOffset int
	target    int // of a jump: an index of code
}

// operand2 returns the registers that an instruction of the ALU, branch or store
// forms reads as its second operand, as a bit set.
func (ins *instruction) operand2() uint16 {
	if ins.register {
		return 1 << ins.src
	}
	return 0
}

// fetches returns the register that an atomic operation writes the old value to.
func (ins *instruction) fetches() (register uint8, ok bool) {
	switch ins.atomic {
	case asm.CmpXchg:
		return 0, true
	case asm.FetchAdd, asm.FetchAnd, asm.FetchOr, asm.FetchXor, asm.Xchg:
		return ins.src, true
	}
	return 0, false
}

// decode checks the encoding of one instruction (RFC 9669 sections 4 and 5): known
// operations only, and zero in fields that have no meaning.
func decode(ins *instruction, a *asm.Instruction, maps []abi.Map) *Refusal {
	*ins = instruction{dst: uint8(a.Dst), src: uint8(a.Src), off: int(a.Offset), imm: a.Constant}
	if a.OpCode != asm.LoadImmOp(asm.DWord) && a.Constant != int64(int32(a.Constant)) {
		return refuse(ErrField, "the constant %d does not fit in 32 bits", a.Constant)
	}
	// Sources of 64-bit loads and calls are kinds, not registers.
	if ins.dst >= registers || ins.src >= registers {
		return refuse(ErrRegister, "there is no register above r10")
	}
	switch class := a.OpCode.Class(); class {
	case asm.ALUClass, asm.ALU64Class:
		ins.wide = class == asm.ALU64Class
		return decodeALU(ins, a)
	case asm.JumpClass, asm.Jump32Class:
		ins.wide = class == asm.JumpClass
		return decodeJump(ins, a)
	case asm.LdClass:
		return decodeWideLoad(ins, a, maps)
	}
	return decodeMemory(ins, a)
}

func decodeWideLoad(ins *instruction, a *asm.Instruction, maps []abi.Map) *Refusal {
	if a.OpCode != asm.LoadImmOp(asm.DWord) {
		return refuse(ErrInstruction, "the only load of this class is that of a 64-bit constant")
	}
	if a.Offset != 0 {
		return refuse(ErrField, "a load of a constant has no offset")
	}
	if r := writable(ins.dst); r != nil {
		return r
	}
	if ins.src == 0 {
		ins.form = formConst
		return nil
	}
	if a.Src != asm.PseudoMapFD && a.Src != asm.PseudoMapValue {
		return refuse(ErrInstruction, "a 64-bit load of kind %d; 0, 1 and 2 are known", ins.src)
	}
	index, offset := uint32(a.Constant), uint32(uint64(a.Constant)>>32)
	if uint64(index) >= uint64(len(maps)) {
		return refuse(ErrMap, "map %d; the program has %d", index, len(maps))
	}
	ins.mapIndex, ins.mapOffset = int(index), int(offset)
	m := &maps[index]
	switch {
	case a.Src == asm.PseudoMapFD && offset != 0:
		return refuse(ErrField, "a map has no offset")
	case a.Src == asm.PseudoMapFD:
		ins.form = formMap
		return nil
	case m.Type != abi.MapArray || m.Entries != 1:
		return refuse(ErrMap, "an address in map %q, which is not an array with one entry", m.Name)
	case offset >= m.Value:
		return refuse(ErrBounds, "offset %d in map %q, whose value has %d bytes", offset, m.Name, m.Value)
	}
	ins.form = formMapValue
	return nil
}

func writable(register uint8) *Refusal {
	if register == frame {
		return refuse(ErrRegister, "r10 may not be written")
	}
	return nil
}
