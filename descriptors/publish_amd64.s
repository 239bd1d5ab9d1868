#include "textflag.h"

// func storeRelease32(p *uint32, v uint32)
// x86 does not reorder a store with older loads or stores (Intel SDM vol. 3,
// 8.2.2), so one plain MOV releases.
TEXT ·storeRelease32(SB), NOSPLIT, $0-12
	MOVQ p+0(FP), AX
	MOVL v+8(FP), BX
	MOVL BX, (AX)
	RET
