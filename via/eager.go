package via

import "github.com/trapeze-nic/trapeze/driver"

// Eager writes to memory of which the NIC has a copy of its own, in blocks: see
// Memory.Eager.
type Eager = driver.Eager

// EagerAttributes say whether memory is eager, and how.
type EagerAttributes = driver.EagerAttributes

// EagerStats count what has become of eager memory, see NIC.EagerStats.
type EagerStats = driver.EagerStats

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
