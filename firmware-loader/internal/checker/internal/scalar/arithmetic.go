package scalar

import "github.com/cilium/ebpf/asm"

// Compute returns what is known of a op b, an operation on 64 bits.
func Compute(op asm.ALUOp, a, b Number) Number {
	r := Unknown()
	switch op {
	case asm.Mov:
		return b
	case asm.Add:
		r = Number{a.bits.Add(b.bits), a.wide.add(b.wide), a.half.add(b.half)}
	case asm.Sub:
		r = Number{a.bits.sub(b.bits), a.wide.sub(b.wide), a.half.sub(b.half)}
	case asm.Neg:
		return Compute(asm.Sub, Const(0), a)
	case asm.Mul:
		r = Number{a.bits.mul(b.bits), a.wide.mul(b.wide), a.half.mul(b.half)}
	case asm.And, asm.Or, asm.Xor:
		r = bitwise(op, a, b)
	case asm.LSh, asm.RSh, asm.ArSh:
		n, ok := b.Const()
		if !ok || n >= 64 {
			return r
		}
		r = shifted(op, a, uint(n))
	}
	// Of quotients and remainders nothing is known, as in the kernel.
	return settled(r)
}

// Compute32 returns what is known of a op b, an operation on the low 32 bits, which
// leaves zeros above. Quotients and remainders are unknown to their full width, as
// in the kernel.
func Compute32(op asm.ALUOp, a, b Number) Number {
	switch op {
	case asm.Mov:
		return b.Truncate(4)
	case asm.Add:
		return fromHalf(a.bits.low().Add(b.bits.low()), a.half.add(b.half))
	case asm.Sub:
		return fromHalf(a.bits.low().sub(b.bits.low()), a.half.sub(b.half))
	case asm.Neg:
		return Compute32(asm.Sub, Const(0), a)
	case asm.Mul:
		return fromHalf(a.bits.low().mul(b.bits.low()), a.half.mul(b.half))
	case asm.And, asm.Or, asm.Xor:
		r := bitwise(op, a, b)
		return fromHalf(r.bits, r.half)
	case asm.LSh, asm.RSh, asm.ArSh:
		// The processor takes the amount modulo 32, but the kernel wants to
		// know the whole register.
		if b.half.one() && b.wide.UMax < 32 {
			return shifted32(op, a, uint(b.half.UMin))
		}
	}
	return Unknown()
}

// Swap returns the low bytes, 2, 4 or 8 of them, in reverse order, with zeros above.
func (n Number) Swap(bytes int) Number {
	r := Unknown()
	r.bits = n.bits.reverse(bytes)
	return settled(r)
}

func bitwise(op asm.ALUOp, a, b Number) Number {
	r := Unknown()
	switch op {
	case asm.And:
		r.bits = a.bits.and(b.bits)
		r.wide.UMax = min(a.wide.UMax, b.wide.UMax)
		r.half.UMax = min(a.half.UMax, b.half.UMax)
	case asm.Or:
		r.bits = a.bits.or(b.bits)
		r.wide.UMin = max(a.wide.UMin, b.wide.UMin)
		r.half.UMin = max(a.half.UMin, b.half.UMin)
	case asm.Xor:
		r.bits = a.bits.xor(b.bits)
	}
	return r
}

func shifted(op asm.ALUOp, a Number, n uint) Number {
	r := Unknown()
	switch op {
	case asm.LSh:
		r.bits, r.wide = a.bits.shiftLeft(n), a.wide.shiftLeft(n)
		if n == 32 {
			// The first half of what compilers do to extend a sign. The
			// other half is an arithmetic shift to the right.
			r.wide.SMin, r.wide.SMax = int64(a.half.SMin)<<32, int64(a.half.SMax)<<32
		}
		if n < 32 {
			r.half = a.half.shiftLeft(n)
		}
	case asm.RSh:
		r.bits, r.wide = a.bits.shiftRight(n), a.wide.shiftRight(n)
	case asm.ArSh:
		r.bits, r.wide = a.bits.shiftArithmetic(n), a.wide.shiftArithmetic(n)
	}
	return r
}

func shifted32(op asm.ALUOp, a Number, n uint) Number {
	low := a.bits.low()
	switch op {
	case asm.LSh:
		return fromHalf(low.shiftLeft(n), a.half.shiftLeft(n))
	case asm.RSh:
		return fromHalf(low.shiftRight(n), a.half.shiftRight(n))
	}
	return fromHalf(low.shiftArithmetic32(n), a.half.shiftArithmetic(n))
}

// Displace returns the sum of two variable parts of an address, or the difference.
// Addresses have no low half of their own: its bounds are those that follow from
// the whole.
func Displace(a, b Number, subtract bool) Number {
	r := Unknown()
	if subtract {
		r.bits, r.wide = a.bits.sub(b.bits), a.wide.sub(b.wide)
	} else {
		r.bits, r.wide = a.bits.Add(b.bits), a.wide.add(b.wide)
	}
	return settled(r)
}
