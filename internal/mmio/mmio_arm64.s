#include "textflag.h"

// Barrier domains and types: Arm ARM, C6.2, CRm field of DMB and DSB.
#define OSHLD $1
#define OSHST $2
#define ST    $14

// Each accessor but WriteBlocks has one instruction that touches the bus, with base
// register only: a hypervisor cannot decode others for an emulated device. ci/disasm
// checks it.

// func Read8(p *uint8) uint8
TEXT ·Read8(SB), NOSPLIT, $0-9
	MOVD p+0(FP), R0
	MOVBU (R0), R1
	MOVB R1, ret+8(FP)
	RET

// func Read16(p *uint16) uint16
TEXT ·Read16(SB), NOSPLIT, $0-10
	MOVD p+0(FP), R0
	MOVHU (R0), R1
	MOVH R1, ret+8(FP)
	RET

// func Read32(p *uint32) uint32
TEXT ·Read32(SB), NOSPLIT, $0-12
	MOVD p+0(FP), R0
	MOVWU (R0), R1
	MOVW R1, ret+8(FP)
	RET

// func Read64(p *uint64) uint64
TEXT ·Read64(SB), NOSPLIT, $0-16
	MOVD p+0(FP), R0
	MOVD (R0), R1
	MOVD R1, ret+8(FP)
	RET

// func Write8(p *uint8, v uint8)
TEXT ·Write8(SB), NOSPLIT, $0-9
	MOVD p+0(FP), R0
	MOVBU v+8(FP), R1
	MOVB R1, (R0)
	RET

// func Write16(p *uint16, v uint16)
TEXT ·Write16(SB), NOSPLIT, $0-10
	MOVD p+0(FP), R0
	MOVHU v+8(FP), R1
	MOVH R1, (R0)
	RET

// func Write32(p *uint32, v uint32)
TEXT ·Write32(SB), NOSPLIT, $0-12
	MOVD p+0(FP), R0
	MOVWU v+8(FP), R1
	MOVW R1, (R0)
	RET

// func Write64(p *uint64, v uint64)
TEXT ·Write64(SB), NOSPLIT, $0-16
	MOVD p+0(FP), R0
	MOVD v+8(FP), R1
	MOVD R1, (R0)
	RET

// func WriteBlocks(to, from *[64]byte, n int)
TEXT ·WriteBlocks(SB), NOSPLIT, $0-24
	MOVD to+0(FP), R0
	MOVD from+8(FP), R1
	MOVD n+16(FP), R2
block:
	VLD1.P 64(R1), [V0.B16, V1.B16, V2.B16, V3.B16]
	VST1.P [V0.B16, V1.B16, V2.B16, V3.B16], 64(R0)
	SUBS $1, R2
	BNE block
	RET

// func PushBlock(to, from *[64]byte, status *uint8, v uint8)
TEXT ·PushBlock(SB), NOSPLIT, $0-25
	MOVD to+0(FP), R0
	MOVD from+8(FP), R1
	MOVD status+16(FP), R2
	MOVBU v+24(FP), R3
	VLD1 (R1), [V0.B16, V1.B16, V2.B16, V3.B16]
	VST1 [V0.B16, V1.B16, V2.B16, V3.B16], (R0)
	DSB ST
	MOVB R3, (R2)
	RET

// func ToDevice()
TEXT ·ToDevice(SB), NOSPLIT, $0-0
	DMB OSHST
	RET

// func FromDevice()
TEXT ·FromDevice(SB), NOSPLIT, $0-0
	DMB OSHLD
	RET

// func FlushWriteCombining()
TEXT ·FlushWriteCombining(SB), NOSPLIT, $0-0
	DSB ST
	RET
