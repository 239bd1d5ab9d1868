#include "textflag.h"

// func Fetch(p *byte)
TEXT ·Fetch(SB), NOSPLIT, $0-8
	MOVD p+0(FP), R0
	PRFM (R0), PLDL1KEEP
	PRFM 64(R0), PLDL1KEEP
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
