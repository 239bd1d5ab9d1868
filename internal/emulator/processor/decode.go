package processor

import (
	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/firmware-loader/abi"
)

// decoder turns instructions into ops.
type decoder struct {
	maps []*Map
	// starts has the index of the instruction that starts in an 8-byte slot, -1 in
	// the second slot of a long one; slots is the inverse.
	starts, slots []int32
}

// layOut finds where instructions start.
func (d *decoder) layOut(insns asm.Instructions) error {
	if len(insns) == 0 || len(insns) > abi.MaxInstructions {
		return ErrLength
	}
	d.slots = make([]int32, 0, len(insns))
	for i := range insns {
		d.slots = append(d.slots, int32(len(d.starts)))
		d.starts = append(d.starts, int32(i))
		if insns[i].OpCode.IsDWordLoad() {
			d.starts = append(d.starts, -1)
		}
	}
	if len(d.starts) > abi.MaxInstructions {
		return ErrLength
	}
	return nil
}

// decode returns the op of instruction number i.
func (d *decoder) decode(i int, ins *asm.Instruction) (op, error) {
	switch class := ins.OpCode.Class(); class {
	case asm.ALUClass, asm.ALU64Class:
		return arithmetic(ins, class == asm.ALU64Class)
	case asm.JumpClass, asm.Jump32Class:
		return d.jump(i, ins)
	case asm.LdXClass:
		return load(ins)
	case asm.StClass, asm.StXClass:
		if class == asm.StXClass && ins.OpCode.Mode() == asm.AtomicMode {
			return atomicOp(ins)
		}
		return store(ins)
	}
	return d.loadConstant(ins)
}

// readable and writable say whether a program may read a register, or write it.
func readable(r asm.Register) bool { return r <= asm.R10 }
func writable(r asm.Register) bool { return r < asm.R10 }

// constant fits the 32 bits that most instructions have for one.
func constant(v int64) bool { return v == int64(int32(v)) }

// loadConstant is the only instruction of two slots: a number or the address of a
// map or in it.
func (d *decoder) loadConstant(ins *asm.Instruction) (op, error) {
	if ins.OpCode != asm.LoadImmOp(asm.DWord) || ins.Offset != 0 {
		return op{}, ErrInstruction
	}
	if !writable(ins.Dst) {
		return op{}, ErrRegister
	}
	o := op{code: opMove, dst: uint8(ins.Dst), src: zeroRegister, imm: uint64(ins.Constant)}
	if ins.Src == asm.R0 {
		return o, nil
	}
	index, offset := uint64(uint32(ins.Constant)), uint64(ins.Constant)>>32
	if index >= uint64(len(d.maps)) {
		return op{}, ErrMap
	}
	switch ins.Src {
	case asm.PseudoMapFD:
		if offset != 0 {
			return op{}, ErrInstruction
		}
		o.imm = regionHandles<<regionShift + index
	case asm.PseudoMapValue:
		if m := d.maps[index]; m.spec.Type != abi.MapArray || offset >= uint64(m.spec.Value) {
			return op{}, ErrMap
		}
		o.imm = (regionMaps+index)<<regionShift + offset
	default:
		return op{}, ErrInstruction
	}
	return o, nil
}

var loads = map[asm.Size]code{asm.Byte: opLoad8, asm.Half: opLoad16, asm.Word: opLoad32, asm.DWord: opLoad64}

func load(ins *asm.Instruction) (op, error) {
	if !writable(ins.Dst) || !readable(ins.Src) {
		return op{}, ErrRegister
	}
	size := ins.OpCode.Size()
	o := op{code: loads[size], dst: uint8(ins.Dst), src: uint8(ins.Src), imm: uint64(ins.Offset)}
	switch ins.OpCode {
	case asm.LoadMemOp(size):
	case asm.LoadMemSXOp(size):
		o.code, o.aux = opLoadSigned, int32(size.Sizeof())
		if size == asm.DWord {
			return op{}, ErrInstruction
		}
	default:
		return op{}, ErrInstruction
	}
	if ins.Constant != 0 {
		return op{}, ErrInstruction
	}
	return o, nil
}

var stores = map[asm.Size]code{asm.Byte: opStore8, asm.Half: opStore16, asm.Word: opStore32, asm.DWord: opStore64}

func store(ins *asm.Instruction) (op, error) {
	if !readable(ins.Dst) || !readable(ins.Src) {
		return op{}, ErrRegister
	}
	size := ins.OpCode.Size()
	o := op{code: stores[size], dst: uint8(ins.Src), src: uint8(ins.Dst), imm: uint64(ins.Offset)}
	switch {
	case ins.OpCode == asm.StoreMemOp(size) && ins.Constant == 0:
	case ins.OpCode == asm.StoreImmOp(size) && ins.Src == asm.R0 && constant(ins.Constant):
		o.dst, o.aux = zeroRegister, int32(ins.Constant)
	default:
		return op{}, ErrInstruction
	}
	return o, nil
}

// Operations of atomic instructions that only order accesses. The assembler has
// functions for them, but no names.
const (
	loadAcquire  asm.AtomicOp = 0x0001_0000
	storeRelease asm.AtomicOp = 0x0001_1000
)

func atomicOp(ins *asm.Instruction) (op, error) {
	size, kind := ins.OpCode.Size(), ins.OpCode.AtomicOp()
	// The constant repeats the operation, or was left out by the assembler.
	if ins.OpCode != kind.OpCode(size) || ins.Constant != 0 && ins.Constant != int64(kind>>8) {
		return op{}, ErrInstruction
	}
	plain := *ins
	plain.Constant = 0
	switch kind {
	case loadAcquire:
		plain.OpCode = asm.LoadMemOp(size)
		return load(&plain)
	case storeRelease:
		plain.OpCode = asm.StoreMemOp(size)
		return store(&plain)
	case asm.FetchAdd, asm.FetchAnd, asm.FetchOr, asm.FetchXor, asm.Xchg:
		if !writable(ins.Src) {
			return op{}, ErrRegister
		}
	case asm.AddAtomic, asm.AndAtomic, asm.OrAtomic, asm.XorAtomic, asm.CmpXchg:
	default:
		return op{}, ErrInstruction
	}
	if !readable(ins.Dst) || !readable(ins.Src) {
		return op{}, ErrRegister
	}
	o := op{code: opAtomic, dst: uint8(ins.Src), src: uint8(ins.Dst), imm: uint64(ins.Offset), aux: int32(kind)}
	switch size {
	case asm.Word:
	case asm.DWord:
		o.aux |= atomicWide
	default:
		return op{}, ErrInstruction
	}
	return o, nil
}
