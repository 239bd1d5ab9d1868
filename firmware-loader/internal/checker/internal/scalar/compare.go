package scalar

import "github.com/cilium/ebpf/asm"

// Verdict says whether a comparison holds.
type Verdict uint8

// Verdicts.
const (
	Maybe Verdict = iota
	Always
	Never
)

func (v Verdict) not() Verdict {
	switch v {
	case Always:
		return Never
	case Never:
		return Always
	}
	return Maybe
}

func either(always, never bool) Verdict {
	switch {
	case always:
		return Always
	case never:
		return Never
	}
	return Maybe
}

// Compare says whether a conditional jump on a op b is taken; narrow compares the
// low 32 bits.
func Compare(op asm.JumpOp, a, b Number, narrow bool) Verdict {
	if op == asm.JSet || op == asm.JEq || op == asm.JNE {
		ab, bb := a.bits, b.bits
		if narrow {
			ab, bb = ab.low(), bb.low()
		}
		switch {
		case op == asm.JSet:
			return compareSet(ab, bb)
		case ab.Mask == 0 && bb.Mask == 0:
			equal := either(ab.Value == bb.Value, ab.Value != bb.Value)
			if op == asm.JNE {
				return equal.not()
			}
			return equal
		}
	}
	if narrow {
		return compareSpan(op, a.half, b.half)
	}
	return compareSpan(op, a.wide, b.wide)
}

// compareSet wants one operand known, as the kernel does.
func compareSet(a, b Bits) Verdict {
	if b.Mask != 0 {
		a, b = b, a
	}
	if b.Mask != 0 {
		return Maybe
	}
	return either(a.Value&b.Value != 0, a.Max()&b.Value == 0)
}

func compareSpan[U uint32 | uint64, S int32 | int64](op asm.JumpOp, a, b span[U, S]) Verdict {
	switch op {
	case asm.JEq:
		return either(false, a.meet(b).empty())
	case asm.JNE:
		return either(a.meet(b).empty(), false)
	case asm.JLT:
		return either(a.UMax < b.UMin, a.UMin >= b.UMax)
	case asm.JLE:
		return either(a.UMax <= b.UMin, a.UMin > b.UMax)
	case asm.JSLT:
		return either(a.SMax < b.SMin, a.SMin >= b.SMax)
	case asm.JSLE:
		return either(a.SMax <= b.SMin, a.SMin > b.SMax)
	}
	if mirror, ok := mirrored[op]; ok {
		return compareSpan(mirror, b, a)
	}
	return Maybe
}

// mirrored has the comparisons that hold with the operands exchanged.
var mirrored = map[asm.JumpOp]asm.JumpOp{
	asm.JGT: asm.JLT, asm.JGE: asm.JLE, asm.JSGT: asm.JSLT, asm.JSGE: asm.JSLE,
}

// negated has the comparisons that hold where the others do not.
var negated = map[asm.JumpOp]asm.JumpOp{
	asm.JEq: asm.JNE, asm.JNE: asm.JEq,
	asm.JGT: asm.JLE, asm.JLE: asm.JGT, asm.JGE: asm.JLT, asm.JLT: asm.JGE,
	asm.JSGT: asm.JSLE, asm.JSLE: asm.JSGT, asm.JSGE: asm.JSLT, asm.JSLT: asm.JSGE,
}

// Refine returns what is known of a and b where a op b holds, or where it does not.
// Where that cannot be, nothing is known: such a branch is followed all the same.
func Refine(op asm.JumpOp, a, b Number, narrow, holds bool) (Number, Number) {
	if op == asm.JSet {
		a, b = refineSets(a, b, narrow, holds)
	} else {
		if !holds {
			op = negated[op]
		}
		if mirror, ok := mirrored[op]; ok {
			b, a = refine(mirror, b, a, narrow)
		} else {
			a, b = refine(op, a, b, narrow)
		}
	}
	if !a.settle() {
		a = Unknown()
	}
	if !b.settle() {
		b = Unknown()
	}
	return a, b
}

// refineSets learns from a test of bits, in which the operands are equals. It wants
// one of them known, as the kernel does.
func refineSets(a, b Number, narrow, holds bool) (Number, Number) {
	known := func(n Number) (v uint64, ok bool) {
		if narrow {
			return n.bits.low().Value, n.bits.low().Mask == 0
		}
		return n.Const()
	}
	if v, ok := known(b); ok {
		return refineSet(a, v, holds), b
	}
	if v, ok := known(a); ok {
		return a, refineSet(b, v, holds)
	}
	return a, b
}

// refineSet learns the one bit of v that is set, or all that are not.
func refineSet(a Number, v uint64, holds bool) Number {
	switch {
	case holds && v != 0 && v&(v-1) == 0:
		a.bits = a.bits.or(knownBits(v))
	case !holds:
		// The kernel forgets the bounds here.
		r := Unknown()
		r.bits = a.bits.and(knownBits(^v))
		return r
	}
	return a
}

func refine(op asm.JumpOp, a, b Number, narrow bool) (Number, Number) {
	if !narrow {
		if op == asm.JEq {
			if met, ok := a.bits.meet(b.bits); ok {
				a.bits, b.bits = met, met
			}
		}
		a.wide, b.wide = refineSpan(op, a.wide, b.wide)
		return a, b
	}
	if op == asm.JEq {
		if met, ok := a.bits.low().meet(b.bits.low()); ok {
			a.bits, b.bits = a.bits.high().or(met), b.bits.high().or(met)
		}
	}
	a.half, b.half = refineSpan(op, a.half, b.half)
	return a, b
}

func refineSpan[U uint32 | uint64, S int32 | int64](op asm.JumpOp, a, b span[U, S]) (span[U, S], span[U, S]) {
	lowest, highest := signedBounds[U, S]()
	switch op {
	case asm.JEq:
		met := a.meet(b)
		return met, met
	case asm.JNE:
		switch {
		case b.one():
			a = a.without(b.UMin)
		case a.one():
			b = b.without(a.UMin)
		}
	case asm.JLT:
		if b.UMax > 0 && a.UMin < ^U(0) {
			a.UMax, b.UMin = min(a.UMax, b.UMax-1), max(b.UMin, a.UMin+1)
		}
	case asm.JLE:
		a.UMax, b.UMin = min(a.UMax, b.UMax), max(b.UMin, a.UMin)
	case asm.JSLT:
		if b.SMax > lowest && a.SMin < highest {
			a.SMax, b.SMin = min(a.SMax, b.SMax-1), max(b.SMin, a.SMin+1)
		}
	case asm.JSLE:
		a.SMax, b.SMin = min(a.SMax, b.SMax), max(b.SMin, a.SMin)
	}
	return a, b
}

// without moves the bounds that are v, unless nothing would be left.
func (a span[U, S]) without(v U) span[U, S] {
	if a.UMin != a.UMax {
		if a.UMin == v {
			a.UMin++
		}
		if a.UMax == v {
			a.UMax--
		}
	}
	if a.SMin != a.SMax {
		if a.SMin == S(v) {
			a.SMin++
		}
		if a.SMax == S(v) {
			a.SMax--
		}
	}
	return a
}
