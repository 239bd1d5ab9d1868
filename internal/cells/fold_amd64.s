#include "textflag.h"

// Bytes of a block in the order of a number whose most significant bit came first.
DATA ·reverse+0(SB)/8, $0x08090a0b0c0d0e0f
DATA ·reverse+8(SB)/8, $0x0001020304050607
GLOBL ·reverse(SB), RODATA|NOPTR, $16

// FOLD multiplies the halves of block by those of by, and adds the products.
#define FOLD(block, by, scratch) \
	MOVO block, scratch \
	PCLMULQDQ $0x11, by, block \
	PCLMULQDQ $0x00, by, scratch \
	PXOR scratch, block

// func foldCells(crc uint32, p *[48]byte, n int) uint32
TEXT ·foldCells(SB), NOSPLIT, $0-28
	MOVL crc+0(FP), AX
	MOVQ p+8(FP), SI
	MOVQ n+16(FP), CX
	MOVOU ·reverse(SB), X5
	MOVOU ·constants+0(SB), X4

	MOVOU (SI), X0
	MOVOU 16(SI), X1
	MOVOU 32(SI), X2
	PSHUFB X5, X0
	PSHUFB X5, X1
	PSHUFB X5, X2

	// The CRC so far belongs to the first four bytes.
	SHLQ $32, AX
	MOVQ AX, X3
	PSLLO $8, X3
	PXOR X3, X0

next:
	DECQ CX
	JZ done
	ADDQ $48, SI
	MOVOU (SI), X6
	MOVOU 16(SI), X7
	MOVOU 32(SI), X8
	PSHUFB X5, X6
	PSHUFB X5, X7
	PSHUFB X5, X8
	FOLD(X0, X4, X3)
	FOLD(X1, X4, X9)
	FOLD(X2, X4, X10)
	PXOR X6, X0
	PXOR X7, X1
	PXOR X8, X2
	JMP next

done:
	// The three blocks become one.
	MOVOU ·constants+16(SB), X4
	MOVOU ·constants+32(SB), X6
	FOLD(X0, X4, X3)
	FOLD(X1, X6, X9)
	PXOR X1, X0
	PXOR X2, X0

	// 128 bits, with 32 zeros to come behind them: first 96, then 64.
	MOVOU ·constants+48(SB), X6
	MOVQ X0, X3
	PSLLO $4, X3
	PCLMULQDQ $0x01, X6, X0
	PXOR X3, X0
	MOVO X0, X3
	PCLMULQDQ $0x11, X6, X3
	PXOR X3, X0

	// The upper 32 of these by the quotient give how many times the generator is in them.
	MOVOU ·constants+64(SB), X6
	MOVO X0, X3
	PSRLQ $32, X3
	PCLMULQDQ $0x00, X6, X3
	PSRLQ $32, X3
	PCLMULQDQ $0x10, X6, X3
	PXOR X3, X0
	MOVQ X0, AX
	MOVL AX, ret+24(FP)
	RET
