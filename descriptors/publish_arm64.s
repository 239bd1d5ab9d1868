#include "textflag.h"

// func storeRelease32(p *uint32, v uint32)
// STLR has release semantics (Arm ARM, B2.3.7).
TEXT ·storeRelease32(SB), NOSPLIT, $0-12
	MOVD  p+0(FP), R0
	MOVWU v+8(FP), R1
	STLRW R1, (R0)
	RET
