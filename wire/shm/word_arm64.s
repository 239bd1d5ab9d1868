#include "textflag.h"

// func fetch(p *byte)
TEXT ·fetch(SB), NOSPLIT, $0-8
	MOVD p+0(FP), R0
	PRFM (R0), PLDL1KEEP
	PRFM 64(R0), PLDL1KEEP
	RET

// func storeWord(p *uint64, v uint64)
// STLR has release semantics (Arm ARM, B2.3.7).
TEXT ·storeWord(SB), NOSPLIT, $0-16
	MOVD p+0(FP), R0
	MOVD v+8(FP), R1
	STLR R1, (R0)
	RET

// func loadBarrier()
// DMB ISHLD (Arm ARM, B2.3.11): 0x9 is its option in the encoding.
TEXT ·loadBarrier(SB), NOSPLIT, $0-0
	DMB $0x9
	RET

// func demote(p *byte, lines int)
// There is no such hint.
TEXT ·demote(SB), NOSPLIT, $0-16
	RET
