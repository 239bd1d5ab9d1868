package checker

import (
	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/internal/abi"
)

const (
	slotSize  = asm.InstructionSize
	registers = 11 // R0 to R10
	frame     = 10 // R10, the end of the stack
)

// Form is the class of an instruction, which decides which fields count.
type Form uint8

// Forms of instructions.
const (
	FormALU      Form = iota
	FormSwap          // of bytes
	FormConst         // 64-bit load of a constant
	FormMap           // load of a map
	FormMapValue      // load of an address in a map's only value
	FormLoad          // from memory
	FormStore         // of a register
	FormStoreImm      // of a constant
	FormAtomic        // read, modify, write
	FormGoto          // always
	FormBranch        // on a condition
	FormCall          // of a helper
	FormExit          // from the program
)

// Instruction is a decoded instruction: its encoding is valid, and it is one that
// the processor has.
type Instruction struct {
	Form      Form
	ALU       asm.ALUOp
	Jump      asm.JumpOp
	Atomic    asm.AtomicOp
	Wide      bool // computes or compares 64 bits rather than 32
	Register  bool // the second operand is Src rather than Constant
	Extend    bool // a load that extends the sign
	Reverse   bool // a swap that exchanges bytes, rather than only dropping those above
	Dst, Src  uint8
	Size      int // bytes of a memory access
	Offset    int // of a memory access
	Constant  int64
	Map       int // number of the map
	MapOffset int
	Target    int // of a jump: the number of an instruction
}

// operand2 returns the registers that an instruction of the ALU, branch or store
// forms reads as its second operand, as a bit set.
func (ins *Instruction) operand2() uint16 {
	if ins.Register {
		return 1 << ins.Src
	}
	return 0
}

// fetches returns the register that an atomic operation writes the old value to.
func (ins *Instruction) fetches() (register uint8, ok bool) {
	switch ins.Atomic {
	case asm.CmpXchg:
		return 0, true
	case asm.FetchAdd, asm.FetchAnd, asm.FetchOr, asm.FetchXor, asm.Xchg:
		return ins.Src, true
	}
	return 0, false
}

// decode checks the encoding of one instruction (RFC 9669 sections 4 and 5): known
// operations only, and zero in fields that have no meaning.
func decode(ins *Instruction, a *asm.Instruction, maps []abi.Map) *Refusal {
	*ins = Instruction{Dst: uint8(a.Dst), Src: uint8(a.Src), Offset: int(a.Offset), Constant: a.Constant}
	if a.OpCode != asm.LoadImmOp(asm.DWord) && a.Constant != int64(int32(a.Constant)) {
		return refuse(ErrField, "the constant %d does not fit in 32 bits", a.Constant)
	}
	// Sources of 64-bit loads and calls are kinds, not registers.
	if ins.Dst >= registers || ins.Src >= registers {
		return refuse(ErrRegister, "there is no register above r10")
	}
	switch class := a.OpCode.Class(); class {
	case asm.ALUClass, asm.ALU64Class:
		ins.Wide = class == asm.ALU64Class
		return decodeALU(ins, a)
	case asm.JumpClass, asm.Jump32Class:
		ins.Wide = class == asm.JumpClass
		return decodeJump(ins, a)
	case asm.LdClass:
		return decodeWideLoad(ins, a, maps)
	}
	return decodeMemory(ins, a)
}

func decodeWideLoad(ins *Instruction, a *asm.Instruction, maps []abi.Map) *Refusal {
	if a.OpCode != asm.LoadImmOp(asm.DWord) {
		return refuse(ErrInstruction, "the only load of this class is that of a 64-bit constant")
	}
	if a.Offset != 0 {
		return refuse(ErrField, "a load of a constant has no offset")
	}
	if r := writable(ins.Dst); r != nil {
		return r
	}
	if ins.Src == 0 {
		ins.Form = FormConst
		return nil
	}
	if a.Src != asm.PseudoMapFD && a.Src != asm.PseudoMapValue {
		return refuse(ErrInstruction, "a 64-bit load of kind %d; 0, 1 and 2 are known", ins.Src)
	}
	index, offset := uint32(a.Constant), uint32(uint64(a.Constant)>>32)
	if uint64(index) >= uint64(len(maps)) {
		return refuse(ErrMap, "map %d; the program has %d", index, len(maps))
	}
	ins.Map, ins.MapOffset = int(index), int(offset)
	m := &maps[index]
	switch {
	case a.Src == asm.PseudoMapFD && offset != 0:
		return refuse(ErrField, "a map has no offset")
	case a.Src == asm.PseudoMapFD:
		ins.Form = FormMap
		return nil
	case m.Type != abi.MapArray || m.Entries != 1:
		return refuse(ErrMap, "an address in map %q, which is not an array with one entry", m.Name)
	case offset >= m.Value:
		return refuse(ErrBounds, "offset %d in map %q, whose value has %d bytes", offset, m.Name, m.Value)
	}
	ins.Form = FormMapValue
	return nil
}

func writable(register uint8) *Refusal {
	if register == frame {
		return refuse(ErrRegister, "r10 may not be written")
	}
	return nil
}
