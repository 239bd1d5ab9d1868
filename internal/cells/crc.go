package cells

import "encoding/binary"

// polynomial is the generator of AAL5's CRC-32, I.363.5, 9.2.1.2: x^32 + x^26 + x^23 +
// x^22 + x^16 + x^12 + x^11 + x^10 + x^8 + x^7 + x^5 + x^4 + x^2 + x + 1. It is that of
// Ethernet, but here the most significant bit of each byte goes first, which hash/crc32
// does not do.
const polynomial = 0x04c11db7

// crcSize is the length in bytes of the CRC at the end of a PDU.
const crcSize = 4

// CRC is the state of AAL5's CRC-32 in the middle of a PDU.
type CRC uint32

const (
	// StartCRC is the state before the first byte.
	StartCRC CRC = 0xffffffff
	// residue is the state behind the CRC itself if a PDU is undamaged.
	residue CRC = 0xc704dd7b
)

// slice is the number of bytes that go into the CRC at a time by tables.
const slice = 8

// remainders[k][b] is the contribution of byte b if k more bytes follow it.
var remainders = func() (t [slice][256]uint32) {
	for b := range t[0] {
		r := uint32(b) << 24
		for range 8 {
			carry := r >> 31
			r = r<<1 ^ carry*polynomial
		}
		t[0][b] = r
	}
	for k := 1; k < slice; k++ {
		for b, r := range t[k-1] {
			t[k][b] = r<<8 ^ t[0][r>>24]
		}
	}
	return t
}()

// Update returns the state behind b.
func (c CRC) Update(b []byte) CRC {
	if n := len(b) / PayloadSize; folds && n > 0 {
		c = CRC(foldCells(uint32(c), (*[PayloadSize]byte)(b), n))
		b = b[n*PayloadSize:]
	}
	return c.table(b)
}

// cell is Update by the payload of a cell.
func (c CRC) cell(p *[PayloadSize]byte) CRC {
	if folds {
		return CRC(foldCells(uint32(c), p, 1))
	}
	return c.table(p[:])
}

// run is Update by the payloads of several cells, which takes less time than one by one.
func (c CRC) run(payloads [][PayloadSize]byte) CRC {
	if folds && len(payloads) > 0 {
		return CRC(foldCells(uint32(c), &payloads[0], len(payloads)))
	}
	for i := range payloads {
		c = c.table(payloads[i][:])
	}
	return c
}

// lastCell is Update by the payload of the last cell of a PDU up to where its CRC is to stand.
func (c CRC) lastCell(p *[PayloadSize]byte) CRC {
	if !folds {
		return c.table(p[:PayloadSize-crcSize])
	}
	// Zeros before the first bit change nothing, so the bytes can be made a whole cell in
	// front, where the state so far is added to the first of them.
	var b [PayloadSize]byte
	copy(b[crcSize:], p[:PayloadSize-crcSize])
	first := b[crcSize : 2*crcSize]
	binary.BigEndian.PutUint32(first, binary.BigEndian.Uint32(first)^uint32(c))
	return CRC(foldCells(0, &b, 1))
}

// table is Update by tables.
func (c CRC) table(b []byte) CRC {
	r := uint32(c)
	for ; len(b) >= slice; b = b[slice:] {
		w := binary.BigEndian.Uint64(b)
		high, low := uint32(w>>32)^r, uint32(w)
		r = remainders[7][high>>24] ^ remainders[6][high>>16&0xff] ^ remainders[5][high>>8&0xff] ^ remainders[4][high&0xff] ^
			remainders[3][low>>24] ^ remainders[2][low>>16&0xff] ^ remainders[1][low>>8&0xff] ^ remainders[0][low&0xff]
	}
	for _, v := range b {
		r = r<<8 ^ remainders[0][byte(r>>24)^v]
	}
	return CRC(r)
}

// Sum returns the CRC as it stands in a trailer, of the bytes so far: "123456789" has
// 0xfc891918.
func (c CRC) Sum() uint32 { return ^uint32(c) }
