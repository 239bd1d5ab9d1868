package via

import "github.com/trapeze-nic/trapeze/driver"

// Eager writes to memory of which the NIC has a copy of its own, in blocks: see
// Memory.Eager.
type Eager = driver.Eager

// EagerAttributes say whether memory is eager, and how.
type EagerAttributes = driver.EagerAttributes

// EagerStats count what has become of eager memory, see NIC.EagerStats.
type EagerStats = driver.EagerStats

type EagerMode = driver.EagerMode

// EagerReceive says where messages go that are received into eager memory.
type EagerReceive = driver.EagerReceive

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

	// EagerIntoMemory: messages go where those of ordinary memory do.
	EagerIntoMemory = driver.EagerIntoMemory
	// EagerWriteBack: messages land in the NIC's copy, block by block, and it writes them back.
	EagerWriteBack = driver.EagerWriteBack
	// EagerHold: messages land in the NIC's copy and stay there until they are read with ReadAt of Memory.Eager.
	// It needs EagerWritten, and takes no rights of remote NICs.
	EagerHold = driver.EagerHold

	// NoRoomFails: the registration fails with ErrResource.
	NoRoomFails = driver.NoRoomFails
	// NoRoomOrdinary: the memory is registered, and is ordinary.
	NoRoomOrdinary = driver.NoRoomOrdinary
	// NoRoomWaits: the registration waits until there is room or its context ends.
	NoRoomWaits = driver.NoRoomWaits
)
