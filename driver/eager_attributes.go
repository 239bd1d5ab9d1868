package driver

import (
	"fmt"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// EagerMode says whether and how the device is given the blocks of memory (SPEC.md 9.1).
type EagerMode uint8

const (
	// EagerOff: the memory is ordinary.
	EagerOff EagerMode = iota
	// EagerWritten: the program writes through Memory.Eager, or calls its Push.
	EagerWritten
	// EagerAtPost: a post pushes what the send names, up to 4 KiB of a segment, as it is
	// then. The program writes as it likes, and gains less.
	EagerAtPost
)

// NoRoom says what becomes of a registration for which the device has no memory left.
type NoRoom uint8

const (
	// NoRoomFails: it fails with ErrResource.
	NoRoomFails NoRoom = iota
	// NoRoomOrdinary: the memory is registered as ordinary memory.
	NoRoomOrdinary
	// NoRoomWaits: it waits until there is room or the context ends.
	NoRoomWaits
)

// EagerReceive says where messages go that are received into eager memory.
type EagerReceive uint8

const (
	// EagerIntoMemory: as with ordinary memory.
	EagerIntoMemory EagerReceive = iota
	// EagerWriteBack: they land in the NIC's copy, which it writes back to memory.
	EagerWriteBack
	// EagerHold: they land in the NIC's copy and stay there. The program reads them with Memory.Eager's ReadAt. The memory has
	// EagerWritten, and no rights of remote NICs.
	EagerHold
)

// EagerAttributes of a registration; the zero value is ordinary memory.
type EagerAttributes struct {
	Mode    EagerMode
	NoRoom  NoRoom
	Receive EagerReceive
	// Wide blocks have 128 bytes instead of 64.
	Wide bool
}

// access is the rights that ask for eager memory.
func (a EagerAttributes) access() (access datasheet.Access) {
	if a.Mode == EagerOff {
		return 0
	}
	access = datasheet.AccessEager
	if a.Wide {
		access |= datasheet.AccessEagerWide
	}
	switch a.Receive {
	case EagerWriteBack:
		access |= datasheet.AccessEagerLands
	case EagerHold:
		access |= datasheet.AccessEagerLands | datasheet.AccessEagerHeld
	}
	return access
}

// check says what is wrong with the attributes: what is held is written to by Memory.Eager alone.
func (a EagerAttributes) check() error {
	if a.Receive > EagerHold || a.Receive != EagerIntoMemory && a.Mode == EagerOff || a.Receive == EagerHold && a.Mode != EagerWritten {
		return fmt.Errorf("%w: eager memory with mode %d that receives in way %d", descriptors.ErrInvalidParameter, a.Mode, a.Receive)
	}
	return nil
}

// errNoEager: the device, or the way to it, has no memory for blocks.
var errNoEager = fmt.Errorf("%w: eager memory", descriptors.ErrNotSupported)
