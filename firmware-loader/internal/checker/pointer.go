package checker

import (
	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/firmware-loader/internal/checker/internal/scalar"
)

// pointerALU checks arithmetic of which one operand or both are addresses, and
// returns the result.
func (e *explorer) pointerALU(ins *Instruction, dst, src *register) (register, *Refusal) {
	switch {
	case !ins.Wide && ins.ALU == asm.Sub && hasFrameHalf(dst.kind) && hasFrameHalf(src.kind):
		return number(scalar.Unknown()), nil
	case !ins.Wide:
		return register{}, refuse(ErrPointer, "arithmetic on 32 bits of %v", firstPointer(dst, src))
	case ins.ALU != asm.Add && ins.ALU != asm.Sub:
		return register{}, refuse(ErrPointer, "only addition and subtraction exist of %v", firstPointer(dst, src))
	case dst.isPointer() && src.isPointer():
		return differenceOf(ins, dst, src)
	case dst.isPointer():
		return e.displace(dst, src.num, ins.ALU == asm.Sub)
	case ins.ALU == asm.Sub:
		return register{}, refuse(ErrPointer, "%v is subtracted from a number", src)
	}
	return e.displace(src, dst.num, false)
}

func firstPointer(a, b *register) *register {
	if a.isPointer() {
		return a
	}
	return b
}

// differenceOf allows what gives the length of a frame.
func differenceOf(ins *Instruction, a, b *register) (register, *Refusal) {
	if ins.ALU != asm.Sub || !inFrame(a.kind) || !inFrame(b.kind) {
		return register{}, refuse(ErrPointer, "of two addresses only differences exist, of addresses in the frame")
	}
	return number(scalar.Unknown()), nil
}

func inFrame(k kind) bool { return k == kindPacket || k == kindMeta || k == kindPacketEnd }

// hasFrameHalf reports whether the low half of what a register holds is that of an
// address in the frame. The length of a frame may be computed on 32 bits.
func hasFrameHalf(k kind) bool { return inFrame(k) || k == kindFrameHalf }

// displace adds a number to an address, or subtracts it.
func (e *explorer) displace(base *register, by scalar.Number, subtract bool) (register, *Refusal) {
	switch base.kind {
	case kindValueOrNull:
		return register{}, refuse(ErrNull, "the answer of the lookup was not compared with null")
	case kindMap, kindPacketEnd, kindFrameHalf:
		return register{}, refuse(ErrPointer, "arithmetic on %v", base.kind)
	case kindStack:
		if subtract {
			return register{}, refuse(ErrPointer, "a subtraction from an address in the stack: add a negative number")
		}
	}
	// Bounds of sums mean something only if those of their parts are sane. This
	// also refuses what the kernel refuses if it happens to know the number.
	if !fitsOffset(by.SMin()) || !fitsOffset(by.SMax()) {
		return register{}, refuse(ErrBounds, "%v is added to %v: limit it first", by, base)
	}
	result := *base
	if v, ok := by.Const(); ok {
		moved := int64(base.off) + int64(v)
		if subtract {
			moved = int64(base.off) - int64(v)
		}
		result.off = int32(moved)
		return result, withinReach(&result)
	}
	if base.kind == kindContext {
		return register{}, refuse(ErrPointer, "a number that is not known is added to the context's address")
	}
	result.num = scalar.Displace(base.num, by, subtract)
	if result.kind == kindPacket {
		result.id, result.verified = e.newID(), 0
	}
	return result, withinReach(&result)
}

func withinReach(r *register) *Refusal {
	off := int64(r.off)
	if !fitsOffset(off) || !fitsOffset(off+r.num.SMin()) || !fitsOffset(off+r.num.SMax()) {
		return refuse(ErrBounds, "the offset is too large: %v", r)
	}
	return nil
}
