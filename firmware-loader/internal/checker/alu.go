package checker

import (
	"math"

	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/firmware-loader/internal/checker/internal/scalar"
)

// second returns the second operand of an instruction: a register, or a constant,
// which is sign-extended.
func second(s *state, ins *Instruction) (register, *Refusal) {
	if !ins.Register {
		return number(scalar.Const(uint64(ins.Constant))), nil
	}
	return s.regs[ins.Src], readable(s, ins.Src)
}

// alu checks an arithmetic instruction and sets its destination.
func (e *explorer) alu(s *state, ins *Instruction) *Refusal {
	src, r := second(s, ins)
	if r != nil {
		return r
	}
	if ins.ALU == asm.Mov {
		return e.move(s, ins, src)
	}
	if extensions[ins.ALU] != 0 {
		return e.signExtend(s, ins, src)
	}
	if r := readable(s, ins.Dst); r != nil {
		return r
	}
	dst := &s.regs[ins.Dst]
	if dst.isPointer() || src.isPointer() {
		result, r := e.pointerALU(ins, dst, &src)
		if r == nil {
			*dst = result
		}
		return r
	}
	compute := scalar.Compute
	if !ins.Wide {
		compute = scalar.Compute32
	}
	result := number(compute(ins.ALU, dst.num, src.num))
	if off, how := constantDelta(dst, ins, src.num); how != notMoved {
		result.id, result.off, result.moved = dst.id, off, how
	}
	*dst = result
	return nil
}

// constantDelta returns the constant that an instruction adds to a number that others are
// known to be, if it does that. The relation to the others can be kept for
// one constant, as in the kernel.
func constantDelta(dst *register, ins *Instruction, by scalar.Number) (off int32, how moved) {
	if dst.id == 0 || dst.moved != notMoved || ins.ALU != asm.Add && ins.ALU != asm.Sub {
		return 0, notMoved
	}
	how = movedWide
	if !ins.Wide {
		if !dst.num.Fits(32) {
			return 0, notMoved
		}
		by, how = by.Truncate(4).SignExtend(4), movedHalf
	}
	v, known := by.Const()
	if !known || int64(v) < math.MinInt32 || int64(v) > math.MaxInt32 {
		return 0, notMoved
	}
	if ins.ALU == asm.Add {
		return int32(v), how
	}
	if int64(v) == math.MinInt32 {
		return 0, notMoved
	}
	return -int32(v), how
}

// share gives the number in a register an id, unless it is a constant or has one:
// what is learned later of one of its copies is learned of all. A number to which a
// constant was added is forgotten to be related to others, as in the kernel.
func (e *explorer) share(r *register) {
	if r.kind == kindNumber && r.moved != notMoved {
		r.forget()
	}
	if _, known := r.num.Const(); r.kind == kindNumber && !known && r.id == 0 {
		r.id = e.newID()
	}
}

func (e *explorer) move(s *state, ins *Instruction, src register) *Refusal {
	switch {
	case !ins.Wide && hasFrameHalf(src.kind):
		src = pointer(kindFrameHalf)
	case !ins.Wide && src.isPointer():
		return refuse(ErrPointer, "32 bits of %v are copied", &src)
	case !ins.Wide && !src.num.Fits(32):
		src = number(src.num.Truncate(4))
	case ins.Register:
		e.share(&s.regs[ins.Src])
		src = s.regs[ins.Src]
	}
	s.regs[ins.Dst] = src
	return nil
}

var extensions = map[asm.ALUOp]int{asm.MovSX8: 1, asm.MovSX16: 2, asm.MovSX32: 4}

func (e *explorer) signExtend(s *state, ins *Instruction, src register) *Refusal {
	if src.isPointer() {
		return refuse(ErrPointer, "the sign of %v is extended", &src)
	}
	size := extensions[ins.ALU]
	extended := number(src.num.SignExtend(size))
	if !ins.Wide {
		extended.num = extended.num.Truncate(4)
	}
	if src.num.Fits(8*size - 1) {
		e.share(&s.regs[ins.Src])
		extended.id = s.regs[ins.Src].id
	}
	s.regs[ins.Dst] = extended
	return nil
}

// swap checks a swap of bytes, or the truncation to what would be swapped.
func swap(s *state, ins *Instruction) *Refusal {
	if r := readable(s, ins.Dst); r != nil {
		return r
	}
	if s.regs[ins.Dst].isPointer() {
		return refuse(ErrPointer, "the bytes of %v are swapped", &s.regs[ins.Dst])
	}
	bytes, n := int(ins.Constant/8), s.regs[ins.Dst].num
	switch {
	case ins.Reverse:
		s.regs[ins.Dst] = number(n.Swap(bytes))
	case bytes < 8:
		s.regs[ins.Dst] = number(n.Truncate(bytes))
	}
	return nil
}
