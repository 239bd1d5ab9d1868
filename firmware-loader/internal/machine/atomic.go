package machine

import (
	"encoding/binary"

	"github.com/cilium/ebpf/asm"
)

// Atomic operations as the aux of opAtomic: that of the assembler, and the width.
const atomicWide int32 = 1 << 20

// atomic carries out an atomic operation at an address. Programs and host take
// turns, so plain accesses are atomic. It returns false for a trap.
func (p *Program) atomic(o *op, address uint64) bool {
	if o.aux&atomicWide == 0 {
		b := p.write.at(address, 4)
		if b == nil {
			return false
		}
		old := binary.LittleEndian.Uint32(b)
		v, store := p.modify(o, uint64(old), uint64(uint32(p.registers[0])))
		if store {
			binary.LittleEndian.PutUint32(b, uint32(v))
		}
		return true
	}
	b := p.write.at(address, 8)
	if b == nil {
		return false
	}
	old := binary.LittleEndian.Uint64(b)
	if v, store := p.modify(o, old, p.registers[0]); store {
		binary.LittleEndian.PutUint64(b, v)
	}
	return true
}

// modify returns the new content of memory, and sets the registers that the
// operation sets. A compare-and-exchange compares with expected.
func (p *Program) modify(o *op, old, expected uint64) (v uint64, store bool) {
	operand := p.registers[o.dst]
	kind := asm.AtomicOp(o.aux &^ atomicWide)
	switch kind {
	case asm.AddAtomic, asm.FetchAdd:
		v = old + operand
	case asm.AndAtomic, asm.FetchAnd:
		v = old & operand
	case asm.OrAtomic, asm.FetchOr:
		v = old | operand
	case asm.XorAtomic, asm.FetchXor:
		v = old ^ operand
	case asm.Xchg:
		v = operand
	case asm.CmpXchg:
		p.registers[0] = old
		return operand, old == expected
	}
	switch kind {
	case asm.FetchAdd, asm.FetchAnd, asm.FetchOr, asm.FetchXor, asm.Xchg:
		p.registers[o.dst] = old
	}
	return v, true
}
