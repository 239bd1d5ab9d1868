#include "textflag.h"

// func Fetch(p *byte)
TEXT ·Fetch(SB), NOSPLIT, $0-8
	MOVD p+0(FP), R0
	PRFM (R0), PLDL1KEEP
	PRFM 64(R0), PLDL1KEEP
	RET

// STLR has release semantics (Arm ARM, B2.3.7).

// func Store32(p *uint32, v uint32)
TEXT ·Store32(SB), NOSPLIT, $0-12
	MOVD  p+0(FP), R0
	MOVWU v+8(FP), R1
	STLRW R1, (R0)
	RET

// func Store64(p *uint64, v uint64)
TEXT ·Store64(SB), NOSPLIT, $0-16
	MOVD p+0(FP), R0
	MOVD v+8(FP), R1
	STLR R1, (R0)
	RET

// func LoadBarrier()
// DMB ISHLD (Arm ARM, B2.3.11): 0x9 is its option in the encoding.
TEXT ·LoadBarrier(SB), NOSPLIT, $0-0
	DMB $0x9
	RET

// func Demote(p *byte, lines int)
// There is no such hint.
TEXT ·Demote(SB), NOSPLIT, $0-16
	RET
