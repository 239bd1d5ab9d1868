#include "textflag.h"

// Bytes of a block in the order of a number whose most significant bit came first.
DATA ·reverse+0(SB)/8, $0x08090a0b0c0d0e0f
DATA ·reverse+8(SB)/8, $0x0001020304050607
GLOBL ·reverse(SB), RODATA|NOPTR, $16

// x^128 and x^192 modulo AAL5's generator: what the lower and the upper half of a block
// become 128 bits further on.
DATA ·ahead+0(SB)/8, $0x00000000e8a45605
DATA ·ahead+8(SB)/8, $0x00000000c5b9cd4c
GLOBL ·ahead(SB), RODATA|NOPTR, $16

// x^256 and x^320 modulo the generator, for 256 bits further on.
DATA ·aheadTwo+0(SB)/8, $0x0000000075be46b7
DATA ·aheadTwo+8(SB)/8, $0x00000000569700e5
GLOBL ·aheadTwo(SB), RODATA|NOPTR, $16

// x^96 and x^64 modulo the generator, for what remains of the last block.
DATA ·last+0(SB)/8, $0x00000000f200aa66
DATA ·last+8(SB)/8, $0x00000000490d678d
GLOBL ·last(SB), RODATA|NOPTR, $16

// func foldBlocks(crc uint32, b []byte) uint64
TEXT ·foldBlocks(SB), NOSPLIT, $0-40
	MOVL crc+0(FP), AX
	MOVQ b_base+8(FP), SI
	MOVQ b_len+16(FP), CX
	MOVOU ·reverse(SB), X5
	MOVOU ·ahead(SB), X4

	// The CRC so far belongs to the first four bytes.
	SHLQ $32, AX
	MOVQ AX, X1
	PSLLO $8, X1
	MOVOU (SI), X0
	PSHUFB X5, X0
	PXOR X1, X0

next:
	SUBQ $16, CX
	JZ done
	ADDQ $16, SI
	MOVOU (SI), X2
	PSHUFB X5, X2
	MOVO X0, X3
	PCLMULQDQ $0x11, X4, X0
	PCLMULQDQ $0x00, X4, X3
	PXOR X2, X0
	PXOR X3, X0
	JMP next

done:
	// 128 bits, with 32 zeros to come behind them: first 96, then 64.
	MOVOU ·last(SB), X6
	MOVQ X0, X3
	PSLLO $4, X3
	PCLMULQDQ $0x01, X6, X0
	PXOR X3, X0
	MOVO X0, X3
	PCLMULQDQ $0x11, X6, X3
	PXOR X3, X0
	MOVQ X0, ret+32(FP)
	RET

// func foldCell(crc uint32, p *[48]byte) uint64
// Its three blocks do not wait for each other.
TEXT ·foldCell(SB), NOSPLIT, $0-24
	MOVL crc+0(FP), AX
	MOVQ p+8(FP), SI
	MOVOU ·reverse(SB), X5
	SHLQ $32, AX
	MOVQ AX, X1
	PSLLO $8, X1
	MOVOU (SI), X0
	MOVOU 16(SI), X2
	MOVOU 32(SI), X7
	PSHUFB X5, X0
	PSHUFB X5, X2
	PSHUFB X5, X7
	PXOR X1, X0
	MOVOU ·aheadTwo(SB), X4
	MOVO X0, X3
	PCLMULQDQ $0x11, X4, X0
	PCLMULQDQ $0x00, X4, X3
	MOVOU ·ahead(SB), X4
	MOVO X2, X6
	PCLMULQDQ $0x11, X4, X2
	PCLMULQDQ $0x00, X4, X6
	PXOR X6, X2
	PXOR X7, X2
	PXOR X3, X0
	PXOR X2, X0

	// As at the end of foldBlocks.
	MOVOU ·last(SB), X6
	MOVQ X0, X3
	PSLLO $4, X3
	PCLMULQDQ $0x01, X6, X0
	PXOR X3, X0
	MOVO X0, X3
	PCLMULQDQ $0x11, X6, X3
	PXOR X3, X0
	MOVQ X0, ret+16(FP)
	RET
