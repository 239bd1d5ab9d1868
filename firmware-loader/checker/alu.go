package checker

import (
	"math"

	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/firmware-loader/checker/internal/scalar"
)

// second returns the second operand of an instruction: a register, or a constant,
// which is sign-extended.
func second(s *state, ins *instruction) (register, *Refusal) {
	if !ins.register {
		return number(scalar.Const(uint64(ins.imm))), nil
	}
	return s.regs[ins.src], readable(s, ins.src)
}

// alu checks an arithmetic instruction and sets its destination.
func (e *explorer) alu(s *state, ins *instruction) *Refusal {
	src, r := second(s, ins)
	if r != nil {
		return r
	}
	if ins.alu == asm.Mov {
		return e.move(s, ins, src)
	}
	if extensions[ins.alu] != 0 {
		return e.signExtend(s, ins, src)
	}
	if r := readable(s, ins.dst); r != nil {
		return r
	}
	dst := &s.regs[ins.dst]
	if dst.isPointer() || src.isPointer() {
		result, r := e.pointerALU(ins, dst, &src)
		if r == nil {
			*dst = result
		}
		return r
	}
	if ins.wide {
		result := number(scalar.Compute(ins.alu, dst.num, src.num))
		if v, known := src.num.Const(); known && ins.alu == asm.Add && dst.id != 0 && !dst.moved && v <= math.MaxInt32 {
			result.id, result.off, result.moved = dst.id, int32(v), true
		}
		*dst = result
	} else {
		*dst = number(scalar.Compute32(ins.alu, dst.num, src.num))
	}
	return nil
}

// share gives the number in a register an id, unless it is a constant or has one:
// what is learned later of one of its copies is learned of all. A number to which a
// constant was added is forgotten to be related to others, as in the kernel.
func (e *explorer) share(r *register) {
	if r.kind == kindNumber && r.moved {
		r.forget()
	}
	if _, known := r.num.Const(); r.kind == kindNumber && !known && r.id == 0 {
		r.id = e.newID()
	}
}

// move copies a register.
func (e *explorer) move(s *state, ins *instruction, src register) *Refusal {
	switch {
	case !ins.wide && hasFrameHalf(src.kind):
		src = pointer(kindFrameHalf)
	case !ins.wide && src.isPointer():
		return refuse(ErrPointer, "32 bits of %v are copied", &src)
	case !ins.wide && !src.num.Fits(32):
		src = number(src.num.Truncate(4))
	case ins.register:
		e.share(&s.regs[ins.src])
		src = s.regs[ins.src]
	}
	s.regs[ins.dst] = src
	return nil
}

var extensions = map[asm.ALUOp]int{asm.MovSX8: 1, asm.MovSX16: 2, asm.MovSX32: 4}

func (e *explorer) signExtend(s *state, ins *instruction, src register) *Refusal {
	if src.isPointer() {
		return refuse(ErrPointer, "the sign of %v is extended", &src)
	}
	size := extensions[ins.alu]
	extended := number(src.num.SignExtend(size))
	if !ins.wide {
		extended.num = extended.num.Truncate(4)
	}
	if src.num.Fits(8*size - 1) {
		e.share(&s.regs[ins.src])
		extended.id = s.regs[ins.src].id
	}
	s.regs[ins.dst] = extended
	return nil
}

// swap checks a swap of bytes, of whose result nothing is known.
func swap(s *state, ins *instruction) *Refusal {
	if r := readable(s, ins.dst); r != nil {
		return r
	}
	if s.regs[ins.dst].isPointer() {
		return refuse(ErrPointer, "the bytes of %v are swapped", &s.regs[ins.dst])
	}
	s.regs[ins.dst] = number(scalar.Unknown())
	return nil
}
