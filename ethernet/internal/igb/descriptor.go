package igb

// Descriptors have 16 bytes, as two words, little-endian.

// received is a descriptor of a receive ring. The driver writes the address of a buffer
// into low, and 0 into high. The device writes back into low what it found, and the hash
// in the upper half; into high the status, the length from bit 32 on, and the VLAN tag
// from bit 48.
type received struct{ low, high uint64 }

// Status in the lower half of received.high.
const (
	rxDone      = 1 << 0
	rxEnd       = 1 << 1 // the frame ends in this buffer
	rxVLAN      = 1 << 3
	rxL4Checked = 1 << 5
	rxIPChecked = 1 << 6
	rxL4Bad     = 1 << 29
	rxIPBad     = 1 << 30
	rxError     = 1 << 31

	rxLengthShift = 32
	rxVLANShift   = 48
)

// rxHashType is the kind of hash, in low; 0 for none.
const rxHashType = 0xf

// sent is a descriptor of a send ring: low is an address, high command and lengths. A
// context descriptor, which says how checksums and segments are made, has lengths of
// headers and the VLAN tag in low.
type sent struct{ low, high uint64 }

// Fields of sent.high. The lower half has length and command, the upper one the options
// and the length of the whole payload from bit 46 on.
const (
	txData    = 3<<20 | 1<<29 // an advanced data descriptor
	txContext = 2<<20 | 1<<29
	txEnd     = 1 << 24
	txCRC     = 1 << 25
	txReport  = 1 << 27
	txVLAN    = 1 << 30
	txSegment = 1 << 31

	txSumIP        = 1 << (32 + 8)
	txSumL4        = 1 << (32 + 9)
	txPayloadShift = 32 + 14

	// In a context descriptor.
	txIsIPv4     = 1 << 10 // the type of checksum is in the lower half from bit 9 on
	txIsTCP      = 1 << 11
	txL4Shift    = 32 + 8
	txMSSShift   = 32 + 16
	txL2Shift    = 9
	txVLANShift  = 16
	txContextLen = 1 // descriptors that a context takes
)

// reportEvery is the number of descriptors at most that are sent before the device says how far it
// is, a power of two.
const reportEvery = 32
