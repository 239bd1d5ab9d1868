package checker

import (
	"math/bits"

	"github.com/trapeze-nic/trapeze/firmware-loader/internal/checker/internal/scalar"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

const slotCount = abi.StackSize / 8

// slot is the knowledge of 8 aligned bytes of the stack. Slot 0 ends at R10.
type slot struct {
	// spilled is the value that one store of width bytes has put at the slot's start. It
	// is shared between states and never changed. nil: nothing is known of
	// the bytes but that they were written.
	spilled *register
	width   uint8
	written uint8 // bit i: byte i was written
}

func (s *slot) holdsPointer() bool { return s.spilled != nil && s.spilled.isPointer() }

// slotOf returns the slot of the byte at that offset, which is in the stack.
func slotOf(off int) int { return (-off - 1) / 8 }

// bytesOf returns which bytes of slot k are among those from lowest to before
// highest, offsets in the stack.
func bytesOf(k, lowest, highest int) uint8 {
	start := -8 * (k + 1)
	from, to := max(lowest-start, 0), min(highest-start, 8)
	if from >= to {
		return 0
	}
	return uint8(1<<to - 1<<from)
}

// storeStack stores a register, aligned to its size, which is a power of two.
func (s *state) storeStack(off, size int, value *register) *Refusal {
	k := slotOf(off)
	at := &s.slots[k]
	mask := bytesOf(k, off, off+size)
	if value.isPointer() && size != 8 {
		return refuse(ErrPointer, "%d bytes of %v are stored", size, value)
	}
	if at.holdsPointer() {
		at.written = 0
	}
	at.spilled = nil
	at.written |= mask
	s.depth = max(s.depth, k+1)
	if off%8 == 0 {
		kept := *value
		if kept.kind == kindNumber {
			kept = kept.low(size)
		}
		at.spilled, at.width = &kept, uint8(size)
	}
	return nil
}

// blurStack forgets the contents of all bytes from lowest to before highest: one of
// them or more were stored to. What was never written may be so still.
func (s *state) blurStack(lowest, highest int) {
	for k := slotOf(highest - 1); k <= slotOf(lowest) && k < s.depth; k++ {
		if s.slots[k].holdsPointer() {
			s.slots[k].written = 0
		}
		s.slots[k].spilled = nil
	}
}

// loadStack returns what a load of size bytes gets, aligned to its size.
func (s *state) loadStack(off, size int) (register, *Refusal) {
	at := &s.slots[slotOf(off)]
	if at.spilled != nil && off%8 == 0 && int(at.width) == size {
		return *at.spilled, nil
	}
	if r := s.readStack(off, off+size); r != nil {
		return register{}, r
	}
	value := number(scalar.Unsigned(size))
	if at.spilled != nil && off%8 == 0 && size < int(at.width) {
		low := at.spilled.low(size)
		value.id, value.off, value.moved = low.id, low.off, low.moved
	}
	return value, nil
}

// readStack checks that the bytes from lowest to before highest may be read as
// numbers.
func (s *state) readStack(lowest, highest int) *Refusal {
	for k := slotOf(highest - 1); k <= slotOf(lowest); k++ {
		at := &s.slots[k]
		switch wanted := bytesOf(k, lowest, highest); {
		case at.holdsPointer():
			return refuse(ErrPointer, "bytes of the stack at r10%+d hold %v", -8*(k+1), at.spilled)
		case at.written&wanted != wanted:
			missing := -8*(k+1) + bits.TrailingZeros8(wanted&^at.written)
			return refuse(ErrUninitialized, "of the bytes of the stack at r10%+d to r10%+d that at r10%+d", lowest, highest-1, missing)
		}
	}
	return nil
}
