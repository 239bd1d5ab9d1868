package machine

import "math"

// merge has ops do the work of their successors where that is frequent: it saves
// rounds of the interpreter. The successors stay in their place: distances do not
// change, and who jumps there finds them.
func merge(code []op) {
	target := make([]bool, len(code))
	for i := range code {
		if o := &code[i]; o.code >= opJump && o.code <= opJumpSLE32 {
			target[i+1+int(o.aux)] = true
		}
	}
	// From the end, so that what a successor has become is known.
	for i := len(code) - 2; i >= 0; i-- {
		switch first, second := &code[i], &code[i+1]; first.code {
		case opMove:
			mergeMove(first, second)
			if first.code == opAddress && i+2 < len(code) {
				mergeAddress(first, &code[i+2])
			}
		case opLoad8, opLoad16, opLoad32:
			mergeLoad(first, second)
			mergeCompare(first, second, target[i+1])
		case opAnd:
			mergeCompare(first, second, target[i+1])
		}
	}
}

// mergeMove takes an answer, or the sum of a register and a constant.
func mergeMove(first, second *op) {
	switch {
	case second.code == opExit && first.dst == 0:
		first.code = opAnswer
	case second.code == opAdd && second.src == zeroRegister && second.dst == first.dst && first.src != zeroRegister:
		first.code, first.imm = opAddress, second.imm
	}
}

// mergeAddress takes the comparison that follows: usually with the frame's end.
func mergeAddress(first, third *op) {
	if third.code == opJumpLT && third.src == first.dst {
		// The same from the other side.
		third.code, third.dst, third.src = opJumpGT, third.src, third.dst
	}
	if third.code == opJumpGT && third.dst == first.dst && third.src != zeroRegister {
		first.aux = alsoJumpGT
	}
}

func mergeLoad(first, second *op) {
	same := second.dst == first.dst
	switch {
	case first.code == opLoad32 && second.code == opLoad32:
		first.aux = alsoLoad32
	case first.code == opLoad32 && second.code == opSwap32 && same:
		first.code = opLoadBig32
	case first.code == opLoad16 && second.code == opSwap16 && same:
		first.code = opLoadBig16
	}
}

// mergeCompare takes a comparison of the result with a constant. target says that
// others jump to the comparison.
func mergeCompare(first, second *op, target bool) {
	if second.src != zeroRegister || second.dst != first.dst {
		return
	}
	// A result of 32 bits compares the same with 32 bits and with 64.
	if narrow := first.code != opAnd || first.src == zeroRegister && first.imm <= math.MaxUint32; narrow && !target {
		switch second.code {
		case opJumpEQ32:
			second.code, second.imm = opJumpEQ, uint64(uint32(second.imm))
		case opJumpNE32:
			second.code, second.imm = opJumpNE, uint64(uint32(second.imm))
		}
	}
	switch second.code {
	case opJumpEQ:
		first.aux = alsoJumpEQ
	case opJumpNE:
		first.aux = alsoJumpNE
	}
}
