// Package concrete computes what the instructions of BPF programs compute (RFC 9669), for
// tests of the checker.
package concrete

import (
	"math/bits"

	"github.com/cilium/ebpf/asm"
)

// Compute returns a op b on 64 bits (RFC 9669 section 4.1). The byte swaps are not
// among the operations: see Swap.
func Compute(op asm.ALUOp, a, b uint64) uint64 {
	switch op {
	case asm.Add:
		return a + b
	case asm.Sub:
		return a - b
	case asm.Mul:
		return a * b
	case asm.And:
		return a & b
	case asm.Or:
		return a | b
	case asm.Xor:
		return a ^ b
	case asm.LSh:
		return a << (b & 63)
	case asm.RSh:
		return a >> (b & 63)
	case asm.ArSh:
		return uint64(int64(a) >> (b & 63))
	case asm.Neg:
		return -a
	case asm.MovSX8:
		return uint64(int64(int8(b)))
	case asm.MovSX16:
		return uint64(int64(int16(b)))
	case asm.MovSX32:
		return uint64(int64(int32(b)))
	case asm.Div, asm.SDiv, asm.Mod, asm.SMod:
		return divide(op, a, b)
	}
	return b // Mov
}

// divide has 0 as the quotient and the dividend as the remainder of a division by
// zero. The lowest number divided by -1 is itself.
func divide(op asm.ALUOp, a, b uint64) uint64 {
	quotient := op == asm.Div || op == asm.SDiv
	signed := op == asm.SDiv || op == asm.SMod
	switch {
	case b == 0 && quotient:
		return 0
	case b == 0:
		return a
	case signed && int64(b) == -1 && quotient:
		return -a
	case signed && int64(b) == -1:
		return 0
	case signed && quotient:
		return uint64(int64(a) / int64(b))
	case signed:
		return uint64(int64(a) % int64(b))
	case quotient:
		return a / b
	}
	return a % b
}

// Compute32 returns a op b on the low 32 bits, with zeros above.
func Compute32(op asm.ALUOp, a, b uint64) uint64 {
	switch op {
	case asm.LSh, asm.RSh:
		a, b = uint64(uint32(a)), b&31
	case asm.ArSh:
		a, b = uint64(int64(int32(a))), b&31
	case asm.SDiv, asm.SMod:
		a, b = uint64(int64(int32(a))), uint64(int64(int32(b)))
	default:
		a, b = uint64(uint32(a)), uint64(uint32(b))
	}
	return uint64(uint32(Compute(op, a, b)))
}

// Holds reports whether a conditional jump on a op b is taken (RFC 9669 section 4.3);
// narrow compares the low 32 bits.
func Holds(op asm.JumpOp, a, b uint64, narrow bool) bool {
	sa, sb := int64(a), int64(b)
	if narrow {
		a, b = uint64(uint32(a)), uint64(uint32(b))
		sa, sb = int64(int32(a)), int64(int32(b))
	}
	switch op {
	case asm.JEq:
		return a == b
	case asm.JNE:
		return a != b
	case asm.JGT:
		return a > b
	case asm.JGE:
		return a >= b
	case asm.JLT:
		return a < b
	case asm.JLE:
		return a <= b
	case asm.JSGT:
		return sa > sb
	case asm.JSGE:
		return sa >= sb
	case asm.JSLT:
		return sa < sb
	case asm.JSLE:
		return sa <= sb
	}
	return a&b != 0
}

// Swap returns the low bytes of v, 16, 32 or 64 bits, in the opposite order if they
// are to be swapped on a little-endian machine, with zeros above (RFC 9669 section
// 4.2).
func Swap(v uint64, width int64, swapped bool) uint64 {
	if swapped {
		v = bits.ReverseBytes64(v) >> (64 - width)
	}
	return v << (64 - width) >> (64 - width)
}

// Change returns what an atomic operation with that opcode stores (RFC 9669 section
// 5.3). CmpXchg compares with expected.
func Change(op asm.AtomicOp, old, operand, expected uint64) uint64 {
	switch op {
	case asm.AddAtomic, asm.FetchAdd:
		return old + operand
	case asm.AndAtomic, asm.FetchAnd:
		return old & operand
	case asm.OrAtomic, asm.FetchOr:
		return old | operand
	case asm.XorAtomic, asm.FetchXor:
		return old ^ operand
	case asm.CmpXchg:
		if old != expected {
			return old
		}
	}
	return operand // also Xchg
}
