#include "textflag.h"

// func Fetch(p *byte)
TEXT ·Fetch(SB), NOSPLIT, $0-8
	MOVQ p+0(FP), AX
	PREFETCHT0 (AX)
	PREFETCHT0 64(AX)
	RET

// func LoadBarrier()
// Loads stay in order.
TEXT ·LoadBarrier(SB), NOSPLIT, $0-0
	RET

// func Demote(p *byte, lines int)
// CLDEMOTE (AX) is 0F 1C /0 (Intel SDM vol. 2A), a hint that processors without
// it take for a NOP.
TEXT ·Demote(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	MOVQ lines+8(FP), CX
loop:
	BYTE $0x0f; BYTE $0x1c; BYTE $0x00
	ADDQ $64, AX
	DECQ CX
	JNZ loop
	RET
