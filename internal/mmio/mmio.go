//go:build amd64 || arm64

// Package mmio reads and writes device registers in mapped regions: one
// function call is one plain access on the bus, of the width that the name
// says.
//
// Go itself cannot say this. The compiler may drop or merge plain stores and
// narrow plain loads, and stores of sync/atomic are locked exchanges on amd64,
// which lock the whole bus when the memory is not cached. So the accessors are
// assembly, and ci/disasm checks what they became.
//
// Values are in the processor's byte order, which on both supported
// architectures is PCI's: little-endian. A pointer must be aligned to its width
// and its memory mapped, else the access faults as through any bad pointer;
// Mapping.Register32 of package vfio gives such pointers.
//
// Accesses to one device's registers stay in program order. They are not
// ordered with memory that the device reads and writes by DMA: which is the purpose of the
// barriers are for.
package mmio

// Read8 loads 8 bits.
//
//go:noescape
func Read8(p *uint8) uint8

// Read16 loads 16 bits.
//
//go:noescape
func Read16(p *uint16) uint16

// Read32 loads 32 bits.
//
//go:noescape
func Read32(p *uint32) uint32

// Read64 loads 64 bits. Whether that stays one transaction depends on the
// device and the bridges on the way.
//
//go:noescape
func Read64(p *uint64) uint64

// Write8 stores 8 bits.
//
//go:noescape
func Write8(p *uint8, v uint8)

// Write16 stores 16 bits.
//
//go:noescape
func Write16(p *uint16, v uint16)

// Write32 stores 32 bits.
//
//go:noescape
func Write32(p *uint32, v uint32)

// Write64 stores 64 bits, see Read64.
//
//go:noescape
func Write64(p *uint64, v uint64)

// WriteBlocks copies n blocks of 64 bytes, at least one, from cached memory to mapped device
// memory, in stores of 16 bytes at ascending addresses, which write-combining makes one
// transaction of for each block. Neither pointer needs to be aligned to more than the copy is
// to be fast.
//
//go:noescape
func WriteBlocks(to, from *[64]byte, n int)

// PushBlock is WriteBlocks of one block, FlushWriteCombining, and then Write8 of v to
// status, in one call.
//
//go:noescape
func PushBlock(to, from *[64]byte, status *uint8, v uint8)

// ToDevice orders stores to DMA memory before a later store to a register. Call
// it between filling a ring and ringing the doorbell, so that the device finds
// what the doorbell announces. It does not order write-combining memory: see
// FlushWriteCombining.
//
// amd64: nothing, as stores stay in order (Intel SDM vol. 3, 8.2.2); the call
// keeps the compiler from moving stores over it. arm64: DMB OSHST.
func ToDevice()

// FromDevice orders the load of a status, an index or a register before later
// loads of DMA memory. Call it between seeing that the device has written
// something and reading it.
//
// amd64: nothing, as loads stay in order; the call keeps the compiler from
// moving loads over it. arm64: DMB OSHLD.
func FromDevice()

// FlushWriteCombining sends what earlier stores left in write-combining buffers
// on its way before any later store. Call it after filling mapped device memory
// that is write-combining.
//
// amd64: SFENCE. arm64: DSB ST.
func FlushWriteCombining()
