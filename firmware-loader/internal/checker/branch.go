package checker

import (
	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/firmware-loader/internal/checker/internal/scalar"
)

// branch checks a conditional jump. Unless the verdict says which way it always
// goes, it turns s into what is known where the condition does not hold, and taken, a
// copy of s, into what is known where it does.
func (e *explorer) branch(s *state, ins *Instruction, taken *state) (scalar.Verdict, *Refusal) {
	if r := readable(s, ins.Dst); r != nil {
		return scalar.Maybe, r
	}
	b, r := second(s, ins)
	if r != nil {
		return scalar.Maybe, r
	}
	a := s.regs[ins.Dst]
	if a.isPointer() || b.isPointer() {
		return comparePointers(s, ins, &a, &b, taken)
	}
	if verdict := scalar.Compare(ins.Jump, a.num, b.num, !ins.Wide); verdict != scalar.Maybe {
		e.needs.decide(e.at)
		return verdict, nil
	}
	s.limitRelated(e.needs.at(e.at).live, b.id, a.id)
	*taken = *s
	same := a.id != 0 && a.id == b.id && a.off == b.off && a.moved == b.moved
	for _, side := range []struct {
		of    *state
		holds bool
	}{{s, false}, {taken, true}} {
		na, nb := scalar.Refine(ins.Jump, a.num, b.num, !ins.Wide, side.holds)
		if ins.Register && (ins.Src == ins.Dst || same) {
			na = compareSame(ins.Jump, b.num, side.holds)
			nb = na
		}
		if e.learn(side.of, ins, na, nb) {
			e.needs.decide(e.at)
		}
	}
	return scalar.Maybe, nil
}

// learn enters what is known of the operands of a comparison, and reports whether it
// says something of other registers.
func (e *explorer) learn(s *state, ins *Instruction, a, b scalar.Number) (shared bool) {
	s.regs[ins.Dst].num = a
	if ins.Register {
		s.regs[ins.Src].num = b
		shared = s.spread(ins.Src)
	}
	return s.spread(ins.Dst) || shared
}

// compareSame returns what is known of a number where a comparison with itself holds,
// or where it does not. Both sides are followed, as the kernel does; where that
// cannot be, nothing is known.
func compareSame(op asm.JumpOp, num scalar.Number, holds bool) scalar.Number {
	switch op {
	case asm.JSet:
		return num
	case asm.JEq, asm.JGE, asm.JLE, asm.JSGE, asm.JSLE:
		if holds {
			return num
		}
	default:
		if !holds {
			return num
		}
	}
	return scalar.Unknown()
}

func comparePointers(s *state, ins *Instruction, a, b *register, taken *state) (scalar.Verdict, *Refusal) {
	equality := ins.Jump == asm.JEq || ins.Jump == asm.JNE
	null := !ins.Register && ins.Constant == 0 && equality
	switch {
	case !ins.Wide && null && hasFrameHalf(a.kind):
		// Data has 32 bits in C: a pointer that was made of it is null if they are
		// zero.
		*taken = *s
		return scalar.Maybe, nil
	case !ins.Wide:
		return scalar.Maybe, refuse(ErrPointer, "32 bits of %v are compared", firstPointer(a, b))
	case null:
		return compareNull(s, ins, a, taken), nil
	case !a.isPointer() || !b.isPointer():
		return scalar.Maybe, refuse(ErrPointer, "%v is compared with a number", firstPointer(a, b))
	case ins.Jump == asm.JSet || isSigned(ins.Jump):
		return scalar.Maybe, refuse(ErrPointer, "a comparison that addresses do not have")
	case a.kind == kindValueOrNull || b.kind == kindValueOrNull:
		return scalar.Maybe, refuse(ErrNull, "the answer of the lookup was not compared with null")
	}
	sameMemory := a.kind == b.kind && a.mapIndex == b.mapIndex && a.kind != kindMap
	if !sameMemory && !(inFrame(a.kind) && inFrame(b.kind)) {
		return scalar.Maybe, refuse(ErrPointer, "%v is compared with %v", a, b)
	}
	*taken = *s
	compareEnd(s, ins.Jump, a, b, taken)
	return scalar.Maybe, nil
}

func isSigned(op asm.JumpOp) bool {
	return op == asm.JSGT || op == asm.JSGE || op == asm.JSLT || op == asm.JSLE
}

func compareNull(s *state, ins *Instruction, a *register, taken *state) scalar.Verdict {
	if a.kind == kindValue || a.kind == kindMap {
		if ins.Jump == asm.JEq {
			return scalar.Never
		}
		return scalar.Always
	}
	*taken = *s
	if a.kind != kindValueOrNull {
		// The kernel does not know that others are never null. It would follow
		// both sides.
		return scalar.Maybe
	}
	s.resolveNull(a.id, ins.Jump == asm.JNE)
	taken.resolveNull(a.id, ins.Jump == asm.JEq)
	return scalar.Maybe
}

// maxFrameOffset bounds the offset that a comparison verifies, as MAX_PACKET_OFF
// does in the kernel.
const maxFrameOffset = 0xffff

// compareEnd learns from a comparison of an address in the frame with its end: where
// it is not above the end, all bytes below it are in the frame.
func compareEnd(s *state, op asm.JumpOp, a, b *register, taken *state) {
	if a.kind == kindPacketEnd {
		mirror := map[asm.JumpOp]asm.JumpOp{asm.JGT: asm.JLT, asm.JGE: asm.JLE, asm.JLT: asm.JGT, asm.JLE: asm.JGE}
		op, a, b = mirror[op], b, a
	}
	if a.kind != kindPacket || b.kind != kindPacketEnd {
		return
	}
	// inside is where the address is below the end, or at most the end.
	inside, below := s, false
	switch op {
	case asm.JGT:
	case asm.JGE:
		below = true
	case asm.JLT:
		inside, below = taken, true
	case asm.JLE:
		inside = taken
	default:
		return
	}
	reach := uint64(maxFrameOffset)
	if a.off <= 0 || a.num.UMax() > reach || a.num.UMax()+uint64(a.off) > reach {
		return
	}
	verified := a.off
	if below {
		verified++
	}
	inside.verify(a.id, verified)
}
