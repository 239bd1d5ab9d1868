package machine

import (
	"encoding/binary"
	"math/bits"
)

// interpret runs ops from number pc on. at is the number of the op after the last.
//
// It is one loop around a switch, which the compiler turns into a jump table.
// Measured against it was a slice of closures per basic block, with pointers to
// their operands: it took twice as long. What counts is the number of rounds, hence
// merge. No check of bounds is left but those that trap: see the capacities of the
// slices, without which the compiler guards against pointers past the end.
//
// left is the budget that is left plus pc. A jump changes both alike, so counting
// costs nothing in between; a loop needs a jump back, where it is looked at.
func (p *Program) interpret(pc, left int) (value uint64, at, rest int, how outcome) {
	r := &p.registers
	code := p.code
	var o *op
loop:
	for uint(pc) < uint(len(code)) {
		o = &code[pc]
		pc++
		b := r[o.src] + o.imm
		d := o.dst
		a := r[d]
		switch o.code {
		case opTrap:
			break loop
		case opMove:
			r[d] = b
		case opAdd:
			r[d] = a + b
		case opSub:
			r[d] = a - b
		case opMul:
			r[d] = a * b
		case opDiv:
			r[d] = quotient(a, b)
		case opMod:
			r[d] = remainder(a, b)
		case opSDiv:
			r[d] = uint64(quotient(int64(a), int64(b)))
		case opSMod:
			r[d] = uint64(remainder(int64(a), int64(b)))
		case opOr:
			r[d] = a | b
		case opAnd:
			r[d] = a & b
			if o.aux != alsoNothing {
				goto compare
			}
		case opXor:
			r[d] = a ^ b
		case opLsh:
			r[d] = a << (b & 63)
		case opRsh:
			r[d] = a >> (b & 63)
		case opArsh:
			r[d] = uint64(int64(a) >> (b & 63))
		case opNeg:
			r[d] = -a

		case opMove32:
			r[d] = uint64(uint32(b))
		case opAdd32:
			r[d] = uint64(uint32(a + b))
		case opSub32:
			r[d] = uint64(uint32(a - b))
		case opMul32:
			r[d] = uint64(uint32(a * b))
		case opDiv32:
			r[d] = uint64(quotient(uint32(a), uint32(b)))
		case opMod32:
			r[d] = uint64(remainder(uint32(a), uint32(b)))
		case opSDiv32:
			r[d] = uint64(uint32(quotient(int32(a), int32(b))))
		case opSMod32:
			r[d] = uint64(uint32(remainder(int32(a), int32(b))))
		case opOr32:
			r[d] = uint64(uint32(a | b))
		case opAnd32:
			r[d] = uint64(uint32(a & b))
		case opXor32:
			r[d] = uint64(uint32(a ^ b))
		case opLsh32:
			r[d] = uint64(uint32(a) << (b & 31))
		case opRsh32:
			r[d] = uint64(uint32(a) >> (b & 31))
		case opArsh32:
			r[d] = uint64(uint32(int32(a) >> (b & 31)))
		case opNeg32:
			r[d] = uint64(uint32(-a))

		case opSigned8:
			r[d] = uint64(int8(b))
		case opSigned16:
			r[d] = uint64(int16(b))
		case opSigned32:
			r[d] = uint64(int32(b))
		case opSigned8to32:
			r[d] = uint64(uint32(int8(b)))
		case opSigned16to32:
			r[d] = uint64(uint32(int16(b)))

		case opLow16:
			r[d] = uint64(uint16(a))
		case opSwap16:
			r[d] = uint64(bits.ReverseBytes16(uint16(a)))
		case opSwap32:
			r[d] = uint64(bits.ReverseBytes32(uint32(a)))
		case opSwap64:
			r[d] = bits.ReverseBytes64(a)

		case opLoad8:
			region, x := b>>regionShift, b&offsetMask
			if region >= regionCount || x >= uint64(len(p.read[region])) {
				break loop
			}
			r[d] = uint64(p.read[region][x])
			if o.aux != alsoNothing {
				goto compare
			}
		case opLoad16:
			region, x := b>>regionShift, b&offsetMask
			if region >= regionCount || x+2 > uint64(len(p.read[region])) {
				break loop
			}
			r[d] = uint64(binary.LittleEndian.Uint16(p.read[region][x : x+2 : x+2]))
			if o.aux != alsoNothing {
				goto compare
			}
		case opLoadBig16:
			region, x := b>>regionShift, b&offsetMask
			if region >= regionCount || x+2 > uint64(len(p.read[region])) {
				break loop
			}
			r[d] = uint64(binary.BigEndian.Uint16(p.read[region][x : x+2 : x+2]))
			pc++
		case opLoad32:
			for {
				region, x := b>>regionShift, b&offsetMask
				if region >= regionCount || x+4 > uint64(len(p.read[region])) {
					break loop
				}
				r[d] = uint64(binary.LittleEndian.Uint32(p.read[region][x : x+4 : x+4]))
				if o.aux == alsoNothing {
					continue loop
				}
				if o.aux != alsoLoad32 {
					goto compare
				}
				if uint(pc) >= uint(len(code)) {
					break loop
				}
				o = &code[pc]
				pc++
				b = r[o.src] + o.imm
				d = o.dst
			}
		case opLoadBig32:
			region, x := b>>regionShift, b&offsetMask
			if region >= regionCount || x+4 > uint64(len(p.read[region])) {
				break loop
			}
			r[d] = uint64(binary.BigEndian.Uint32(p.read[region][x : x+4 : x+4]))
			pc++
		case opLoad64:
			region, x := b>>regionShift, b&offsetMask
			if region >= regionCount || x+8 > uint64(len(p.read[region])) {
				break loop
			}
			r[d] = binary.LittleEndian.Uint64(p.read[region][x : x+8 : x+8])

		case opStore8:
			region, x := b>>regionShift, b&offsetMask
			if region >= regionCount || x >= uint64(len(p.write[region])) {
				break loop
			}
			p.write[region][x] = uint8(a + uint64(o.aux))
		case opStore16:
			region, x := b>>regionShift, b&offsetMask
			if region >= regionCount || x+2 > uint64(len(p.write[region])) {
				break loop
			}
			binary.LittleEndian.PutUint16(p.write[region][x:x+2:x+2], uint16(a+uint64(o.aux)))
		case opStore32:
			region, x := b>>regionShift, b&offsetMask
			if region >= regionCount || x+4 > uint64(len(p.write[region])) {
				break loop
			}
			binary.LittleEndian.PutUint32(p.write[region][x:x+4:x+4], uint32(a+uint64(o.aux)))
		case opStore64:
			region, x := b>>regionShift, b&offsetMask
			if region >= regionCount || x+8 > uint64(len(p.write[region])) {
				break loop
			}
			binary.LittleEndian.PutUint64(p.write[region][x:x+8:x+8], a+uint64(o.aux))

		case opJump:
			goto jump
		case opJumpEQ:
			if a == b {
				goto jump
			}
		case opJumpNE:
			if a != b {
				goto jump
			}
		case opJumpGT:
			if a > b {
				goto jump
			}
		case opJumpGE:
			if a >= b {
				goto jump
			}
		case opJumpLT:
			if a < b {
				goto jump
			}
		case opJumpLE:
			if a <= b {
				goto jump
			}
		case opJumpSet:
			if a&b != 0 {
				goto jump
			}
		case opJumpSGT:
			if int64(a) > int64(b) {
				goto jump
			}
		case opJumpSGE:
			if int64(a) >= int64(b) {
				goto jump
			}
		case opJumpSLT:
			if int64(a) < int64(b) {
				goto jump
			}
		case opJumpSLE:
			if int64(a) <= int64(b) {
				goto jump
			}
		case opJumpEQ32:
			if uint32(a) == uint32(b) {
				goto jump
			}
		case opJumpNE32:
			if uint32(a) != uint32(b) {
				goto jump
			}
		case opJumpGT32:
			if uint32(a) > uint32(b) {
				goto jump
			}
		case opJumpGE32:
			if uint32(a) >= uint32(b) {
				goto jump
			}
		case opJumpLT32:
			if uint32(a) < uint32(b) {
				goto jump
			}
		case opJumpLE32:
			if uint32(a) <= uint32(b) {
				goto jump
			}
		case opJumpSet32:
			if uint32(a&b) != 0 {
				goto jump
			}
		case opJumpSGT32:
			if int32(a) > int32(b) {
				goto jump
			}
		case opJumpSGE32:
			if int32(a) >= int32(b) {
				goto jump
			}
		case opJumpSLT32:
			if int32(a) < int32(b) {
				goto jump
			}
		case opJumpSLE32:
			if int32(a) <= int32(b) {
				goto jump
			}

		case opLoadSigned, opAtomic, opCall:
			return b, pc, left, called
		case opExit:
			if left < pc {
				return 0, pc, left, exhausted
			}
			return r[0], pc, left, answered
		case opAnswer:
			if left < pc+1 {
				return 0, pc + 1, left, exhausted
			}
			return b, pc, left, answered
		case opAddress:
			r[d] = b
			pc++
			if o.aux == alsoNothing {
				continue
			}
			if uint(pc) >= uint(len(code)) {
				break loop
			}
			o = &code[pc]
			pc++
			if b > r[o.src] {
				goto jump
			}
		default:
			break loop
		}
		continue

	compare:
		if uint(pc) >= uint(len(code)) {
			break
		}
		{
			n := &code[pc]
			pc++
			if (r[d] == n.imm) != (o.aux == alsoJumpEQ) {
				continue
			}
			o = n
		}

	jump:
		left += int(o.aux)
		pc += int(o.aux)
		if o.aux < 0 && left < pc {
			return 0, pc - int(o.aux), left, exhausted
		}
	}
	return 0, pc, left, trapped
}

// Division as RFC 9669, section 4.1 has it: a division by zero gives zero, the
// remainder of one the dividend; the one signed quotient that does not fit wraps.
// Go defines the most negative number divided by -1 as itself, remainder 0 (language
// specification, "Integer operators"), as wanted.

func quotient[T uint32 | uint64 | int32 | int64](a, b T) T {
	if b == 0 {
		return 0
	}
	return a / b
}

func remainder[T uint32 | uint64 | int32 | int64](a, b T) T {
	if b == 0 {
		return a
	}
	return a % b
}
