package processor

import "github.com/trapeze-nic/trapeze/internal/abi"

// layout says what is where in SRAM. Slots are at its start.
type layout struct {
	slotSize uint32 // bytes
	mailbox  uint32 // offset, bytes
}

const (
	// Slots is the number of images that SRAM has room for: one that runs, and another.
	Slots = 2
	// mailboxSize in bytes: room for the largest key and value, in whole pages of
	// 64 KiB, the largest that a host may have.
	mailboxSize = 128 << 10
	// MinSRAM is the least that a processor works with, in bytes.
	MinSRAM = 2 * mailboxSize
	// slotShare is the part of SRAM that a slot has where that is more than minSlot bytes,
	// which it has where half of SRAM has room for all: the rest of large SRAM is for
	// endpoints.
	slotShare = 32
	minSlot   = 256 << 10
)

const _ = uint(mailboxSize - abi.MaxKey - abi.MaxValue)

// layOut lays out SRAM of MinSRAM bytes or more: slots in the first half at most, then
// the mailbox. The rest is the engine's.
func layOut(sram int) layout {
	const align = 64
	size := uint32(min(sram/2/Slots, max(sram/slotShare, minSlot))) &^ (align - 1)
	return layout{slotSize: size, mailbox: Slots * size}
}

// slotAt returns the number of the slot that starts at an offset.
func (l *layout) slotAt(offset uint32) (slot uint32, ok bool) {
	slot = offset / l.slotSize
	return slot, slot < Slots && l.offset(slot) == offset
}

// offset returns where a slot starts.
func (l *layout) offset(slot uint32) uint32 { return slot * l.slotSize }
