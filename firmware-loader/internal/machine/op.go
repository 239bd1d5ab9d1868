package machine

// op is a decoded instruction. Ops and instructions correspond one to one, so that
// the distance between two ops is the number of instructions between them, by which
// budgets are counted. An op that does the work of its successors skips them.
//
// Most ops have two operands: a, the register dst, and b, the register src plus imm.
// Where an instruction has a constant instead of a register, src is zeroRegister.
type op struct {
	code     code
	dst, src uint8
	aux      int32 // distance of a jump, constant of a store, or as at the code
	imm      uint64
}

// code says what an op does. The zero value traps.
type code uint8

const (
	opTrap code = iota

	// dst = a op b, 64 bits.
	opMove
	opAdd
	opSub
	opMul
	opDiv
	opMod
	opSDiv
	opSMod
	opOr
	opAnd // aux: an alsoXxx
	opXor
	opLsh
	opRsh
	opArsh
	opNeg

	// The same on the low 32 bits; the upper ones become zero.
	opMove32
	opAdd32
	opSub32
	opMul32
	opDiv32
	opMod32
	opSDiv32
	opSMod32
	opOr32
	opAnd32
	opXor32
	opLsh32
	opRsh32
	opArsh32
	opNeg32

	// dst = b, of which the low bits count, with their sign.
	opSigned8
	opSigned16
	opSigned32
	opSigned8to32
	opSigned16to32

	// dst = its low bits, in this order or the other.
	opLow16
	opSwap16
	opSwap32
	opSwap64

	// dst = memory at b. aux: an alsoXxx.
	opLoad8
	opLoad16
	opLoad32
	opLoad64
	opLoadSigned // aux: bytes

	// Memory at b = a + aux.
	opStore8
	opStore16
	opStore32
	opStore64
	opAtomic // aux: the operation; dst is the register that is its source

	// Jump by aux.
	opJump
	opJumpEQ
	opJumpNE
	opJumpGT
	opJumpGE
	opJumpLT
	opJumpLE
	opJumpSet
	opJumpSGT
	opJumpSGE
	opJumpSLT
	opJumpSLE
	opJumpEQ32
	opJumpNE32
	opJumpGT32
	opJumpGE32
	opJumpLT32
	opJumpLE32
	opJumpSet32
	opJumpSGT32
	opJumpSGE32
	opJumpSLT32
	opJumpSLE32

	opCall // imm: the helper
	opExit

	// Merged ops, made by merge.

	opAnswer    // the answer is b: move to R0, exit
	opAddress   // dst = b, skip one: move, add a constant. aux: an alsoXxx
	opLoadBig16 // dst = memory at b, big-endian, skip one: load, to big-endian
	opLoadBig32
)

// What an op does when its own work is done: that of the next op.
const (
	alsoNothing int32 = iota
	alsoJumpEQ        // opJumpEQ that compares with a constant
	alsoJumpNE        // opJumpNE that compares with a constant
	alsoJumpGT        // opJumpGT
	alsoLoad32        // opLoad32
)

// Registers beyond R0 to R10. Register numbers are bytes and the register file has
// 256 entries, which saves a bounds check for each.
const (
	zeroRegister  = 11 // never written
	frameRegister = 10 // R10
	registerCount = 256
)
