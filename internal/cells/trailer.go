package cells

import "encoding/binary"

const (
	// TrailerSize is the length of AAL5's trailer in bytes.
	TrailerSize = 8
	// MaxPDU is the longest PDU in bytes, without padding and trailer: the length has 16
	// bits.
	MaxPDU = 1<<16 - 1
	// MaxCells is the number of cells of such a PDU.
	MaxCells = (MaxPDU + TrailerSize + PayloadSize - 1) / PayloadSize
)

// Trailer ends the last cell of a PDU, I.363.5, 9.2.1.2.
type Trailer struct {
	UU     uint8  // CPCS-UU: the users' own, carried unchanged
	CPI    uint8  // common part indicator; 0 unless both ends know better
	Length uint16 // of the PDU in bytes, without padding and trailer; 0: given up
	CRC    uint32 // over all of its cells, but for these four bytes
}

// Put writes the trailer.
func (t Trailer) Put(b *[TrailerSize]byte) {
	b[0], b[1] = t.UU, t.CPI
	binary.BigEndian.PutUint16(b[2:], t.Length)
	binary.BigEndian.PutUint32(b[4:], t.CRC)
}

// ParseTrailer reads a trailer.
func ParseTrailer(b *[TrailerSize]byte) Trailer {
	return Trailer{UU: b[0], CPI: b[1], Length: binary.BigEndian.Uint16(b[2:]), CRC: binary.BigEndian.Uint32(b[4:])}
}

// Count returns how many cells a PDU of n bytes has, 0 to MaxPDU.
func Count(n int) int { return (n + TrailerSize + PayloadSize - 1) / PayloadSize }
