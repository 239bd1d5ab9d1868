#include "textflag.h"

// Each accessor but WriteBlocks has one instruction that touches the bus. ci/disasm checks
// it.

// func Read8(p *uint8) uint8
TEXT ·Read8(SB), NOSPLIT, $0-9
	MOVQ p+0(FP), AX
	MOVBLZX (AX), BX
	MOVB BX, ret+8(FP)
	RET

// func Read16(p *uint16) uint16
TEXT ·Read16(SB), NOSPLIT, $0-10
	MOVQ p+0(FP), AX
	MOVWLZX (AX), BX
	MOVW BX, ret+8(FP)
	RET

// func Read32(p *uint32) uint32
TEXT ·Read32(SB), NOSPLIT, $0-12
	MOVQ p+0(FP), AX
	MOVL (AX), BX
	MOVL BX, ret+8(FP)
	RET

// func Read64(p *uint64) uint64
TEXT ·Read64(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	MOVQ (AX), BX
	MOVQ BX, ret+8(FP)
	RET

// func Write8(p *uint8, v uint8)
TEXT ·Write8(SB), NOSPLIT, $0-9
	MOVQ p+0(FP), AX
	MOVBLZX v+8(FP), BX
	MOVB BX, (AX)
	RET

// func Write16(p *uint16, v uint16)
TEXT ·Write16(SB), NOSPLIT, $0-10
	MOVQ p+0(FP), AX
	MOVWLZX v+8(FP), BX
	MOVW BX, (AX)
	RET

// func Write32(p *uint32, v uint32)
TEXT ·Write32(SB), NOSPLIT, $0-12
	MOVQ p+0(FP), AX
	MOVL v+8(FP), BX
	MOVL BX, (AX)
	RET

// func Write64(p *uint64, v uint64)
TEXT ·Write64(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	MOVQ v+8(FP), BX
	MOVQ BX, (AX)
	RET

// func WriteBlocks(to, from *[64]byte, n int)
TEXT ·WriteBlocks(SB), NOSPLIT, $0-24
	MOVQ to+0(FP), AX
	MOVQ from+8(FP), BX
	MOVQ n+16(FP), CX
block:
	MOVOU (BX), X0
	MOVOU 16(BX), X1
	MOVOU 32(BX), X2
	MOVOU 48(BX), X3
	MOVOU X0, (AX)
	MOVOU X1, 16(AX)
	MOVOU X2, 32(AX)
	MOVOU X3, 48(AX)
	ADDQ $64, AX
	ADDQ $64, BX
	DECQ CX
	JNE block
	RET

// func PushBlock(to, from *[64]byte, status *uint8, v uint8)
TEXT ·PushBlock(SB), NOSPLIT, $0-25
	MOVQ to+0(FP), AX
	MOVQ from+8(FP), BX
	MOVQ status+16(FP), CX
	MOVBLZX v+24(FP), DX
	MOVOU (BX), X0
	MOVOU 16(BX), X1
	MOVOU 32(BX), X2
	MOVOU 48(BX), X3
	MOVOU X0, (AX)
	MOVOU X1, 16(AX)
	MOVOU X2, 32(AX)
	MOVOU X3, 48(AX)
	SFENCE
	MOVB DX, (CX)
	RET

// func ToDevice()
TEXT ·ToDevice(SB), NOSPLIT, $0-0
	RET

// func FromDevice()
TEXT ·FromDevice(SB), NOSPLIT, $0-0
	RET

// func FlushWriteCombining()
TEXT ·FlushWriteCombining(SB), NOSPLIT, $0-0
	SFENCE
	RET
