package datasheet

import "structs"

// TokenSize is the size in bytes of a work-queue token.
const TokenSize = 16

// Token is one entry of a work queue, a ring of 2^n tokens in host memory. It
// names a descriptor by application address and memory handle (SPEC.md 4.1).
type Token struct {
	_ structs.HostLayout
	// Address is the application address of the descriptor, aligned to
	// DescriptorAlign.
	Address uint64
	// Handle is the memory handle of the region that holds all of it.
	Handle uint32
	// Flags is reserved and zero.
	Flags uint32
}

// CompletionSize is the size in bytes of a completion-queue entry.
const CompletionSize = 16

// Completion is one entry of a completion queue, a ring of 2^n entries in host
// memory (SPEC.md 6). The device writes Flags last.
type Completion struct {
	_ structs.HostLayout
	// Endpoint is the number of the endpoint whose queue completed.
	Endpoint uint32
	// Index is the free-running number of the completed token on that queue.
	Index uint32
	// Status repeats the descriptor's status word.
	Status uint32
	// Flags holds the phase bit and which queue completed. Use LoadFlags and
	// Publish: the other side is writing.
	Flags uint32
}

// Flags of a completion entry.
const (
	// CompletionPhase is the bit that makes an entry valid. It is 1 on the
	// first pass of the ring and changes with each pass: pass n (from 0) writes
	// 1 for even n. Rings start zeroed.
	CompletionPhase uint32 = 0x1
	// CompletionReceive is set if the receive queue completed, clear for send.
	CompletionReceive uint32 = 0x2
	// CompletionFlagsReserved bits are zero.
	CompletionFlagsReserved uint32 = 0xfffffffc
)

// PhaseOf returns the phase bit that the device writes into entry number index
// (free-running) of a ring of 2^log2 entries.
func PhaseOf(index uint32, log2 uint8) uint32 {
	return ^(index >> log2) & 1
}
