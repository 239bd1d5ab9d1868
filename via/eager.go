package via

import (
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// Eager writes to memory of which the NIC has a copy of its own, in blocks: see
// Memory.Eager.
type Eager = driver.Eager

// EagerAttributes say whether memory is eager, and how.
type EagerAttributes = driver.EagerAttributes

// EagerMode is described at EagerWritten and EagerAtPost.
type EagerMode = driver.EagerMode

// NoRoom says what becomes of a registration for which the NIC has no memory left.
type NoRoom = driver.NoRoom

const (
	// EagerWritten memory is written through Memory.Eager: a block goes to the NIC when the
	// writer leaves it, so that the NIC has the message when it is posted. Or the program
	// writes as it likes and calls Push.
	EagerWritten = driver.EagerWritten
	// EagerAtPost memory is written as any other. A post pushes what the send names, up to
	// 4 KiB of a segment.
	EagerAtPost = driver.EagerAtPost

	// NoRoomFails: the registration fails with ErrResource.
	NoRoomFails = driver.NoRoomFails
	// NoRoomOrdinary: the memory is registered, and is ordinary.
	NoRoomOrdinary = driver.NoRoomOrdinary
	// NoRoomWaits: the registration waits until there is room or its context ends.
	NoRoomWaits = driver.NoRoomWaits
)

// EagerStats count what has become of eager memory.
type EagerStats struct {
	driver.EagerStats
	// Taken blocks came from the NIC's memory, Read ones from host memory, which they had to
	// since the NIC did not have them: both of eager memory only.
	Taken uint64 `json:"blocks_taken"`
	Read  uint64 `json:"blocks_read"`
	// Refused registrations found no room, whatever became of them then.
	Refused uint64 `json:"registrations_refused"`
	// FreeSRAM is the number of free bytes of the NIC's memory.
	FreeSRAM uint32 `json:"sram_free_bytes"`
}

// EagerStats asks the NIC. It fails with ErrNotSupported on one without eager memory.
func (n *NIC) EagerStats() (EagerStats, error) {
	s := EagerStats{EagerStats: n.NIC.EagerStats()}
	free, all, err := n.FreeSRAM()
	if err == nil && all == 0 {
		err = n.Refuse("ask for eager memory", ErrNotSupported, "", "the NIC gives out no memory of its own")
	}
	if err != nil {
		return s, err
	}
	s.FreeSRAM = free
	counters, err := n.Counters()
	if err != nil {
		return s, err
	}
	s.Taken = counters[datasheet.CounterEagerBlocks.String()]
	s.Read = counters[datasheet.CounterEagerReads.String()]
	s.Refused = counters[datasheet.CounterEagerRefused.String()]
	return s, nil
}
