package core

import (
	"time"

	"github.com/trapeze-nic/trapeze/internal/speed"
)

// hostBus is the bus between the NIC and host memory, which hostTx and hostRcv use. A full-duplex one has a way
// for each; a half-duplex one carries one transfer at a time, and the directions take turns.
type hostBus struct {
	speed.Path
	half  bool
	busy  [Directions]bool
	wants [Directions]bool // it has asked in vain
	last  Direction        // that has begun a transfer
}

// Acquire begins a transfer in a direction. It returns false while the bus carries another.
func (b *hostBus) acquire(d Direction) bool {
	if !b.half {
		return true
	}
	other := Directions - 1 - d
	if b.busy[other] || b.last == d && b.wants[other] {
		b.wants[d] = true
		b.wants[other] = b.busy[other] && b.wants[other] // it may not want any more
		return false
	}
	b.busy[d], b.wants[d], b.last = true, false, d
	return true
}

// Release ends the transfer of a direction.
func (b *hostBus) release(d Direction) { b.busy[d] = false }

// placement is the transfer of hostRcv, where the bus has a speed.
type placement struct {
	Moves int  // bytes of the transfer under way
	ends  bool // the frame ends with it
	until time.Duration
}
