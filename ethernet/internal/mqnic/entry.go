package mqnic

// descriptor is an entry of a transmit or receive ring: 16 bytes, little-endian. The driver uses
// blocks of one descriptor, as a frame is in one buffer. Low has the checksum command in bits 31:16,
// and the length in bytes in the upper half; high is the address (mqnic_hw.h, struct mqnic_desc).
type descriptor struct{ low, high uint64 }

const (
	descriptorLog   = 4 // log2 of the bytes of a descriptor
	descSumShift    = 16
	descLengthShift = 32
)

// Checksum command: the sum is over all bytes from start on, and goes to field bytes behind start.
const (
	sumOn         = 1 << 15
	sumFieldShift = 8
	maxSumStart   = 255
)

// completion is an entry of a completion ring: 32 bytes, little-endian (struct mqnic_cpl).
type completion struct {
	queue, index, length, _ uint16
	_                       [6]byte // time stamp
	sum                     uint16  // of all that follows the Ethernet header, as a number of the host
	hash                    uint32
	hashType, port          uint8
	_                       [6]byte
	phase                   uint32 // bit 31
}

// event is an entry of an event ring: 32 bytes (struct mqnic_event). Its phase is where a
// completion has it.
type event struct {
	kind, source uint16
	_            [24]byte
	phase        uint32
}

const (
	entryBytes = 32 // of completions and events
)

// fresh reports whether an entry is new for a consumer that has come this far. The size of the ring
// is a power of two.
func fresh(phase, consumer, size uint32) bool {
	return (phase>>31 == 0) == (consumer&size != 0)
}
