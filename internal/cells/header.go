package cells

import "encoding/binary"

// Sizes in bytes.
const (
	HeaderSize  = 5  // I.361, 2.2: four bytes and the header check
	PayloadSize = 48 // what a cell carries
	Size        = HeaderSize + PayloadSize
)

// Greatest values of the fields of a header at the user-network interface, I.361, 2.2.
const (
	MaxGFC = 1<<4 - 1
	MaxPTI = 1<<3 - 1
)

// Payload types (PTI), I.361, 2.2.4. What else there is of them is not for users' data.
const (
	PTIMore = 0 // a cell of a PDU
	PTILast = 1 // its last cell: ATM-user-to-ATM-user indication
	// ptiOAM is set in cells of the network itself.
	ptiOAM = 4
)

// Header is the header of a cell at the user-network interface.
type Header struct {
	GFC uint8 // generic flow control, 0 to MaxGFC
	VPI uint8 // virtual path
	VCI uint16
	PTI uint8 // payload type, 0 to MaxPTI
	CLP bool  // may be lost before others
}

// Last reports whether a PDU ends with the cell. It is false for cells that carry no
// users' data.
func (h Header) Last() bool { return h.PTI&(ptiOAM|PTILast) == PTILast }

// User reports whether the cell carries users' data.
func (h Header) User() bool { return h.PTI&ptiOAM == 0 }

// Word returns the first four bytes of the header, the first one uppermost. Of a field
// that is too large, the upper bits are left out.
func (h Header) Word() uint32 {
	w := uint32(h.GFC&MaxGFC)<<28 | uint32(h.VPI)<<20 | uint32(h.VCI)<<4 | uint32(h.PTI&MaxPTI)<<1
	if h.CLP {
		w |= 1
	}
	return w
}

// HeaderOf is the header with the first four bytes word.
func HeaderOf(word uint32) Header {
	return Header{GFC: uint8(word >> 28), VPI: uint8(word >> 20), VCI: uint16(word >> 4), PTI: uint8(word>>1) & MaxPTI, CLP: word&1 != 0}
}

// Put writes the header with its check.
func (h Header) Put(b *[HeaderSize]byte) {
	binary.BigEndian.PutUint32(b[:], h.Word())
	b[4] = HEC(b[:4])
}

// ParseHeader reads a header. It fails with ErrHEC if the check does not fit. Errors of
// one bit, which I.432.1, 4.3.2 lets a receiver correct, are not corrected: what came
// here had a checksum that was right, so that such a cell was made so.
func ParseHeader(b *[HeaderSize]byte) (Header, error) {
	if HEC(b[:4]) != b[4] {
		return Header{}, ErrHEC
	}
	return HeaderOf(binary.BigEndian.Uint32(b[:])), nil
}

// coset is added to the remainder, I.432.1, 4.3.2: so a header of zeros has a check that
// is not zero, and cells are found in a stream of bits.
const coset = 0x55

// hecRemainders are those of I.432.1's generator, x^8 + x^2 + x + 1.
var hecRemainders = func() (t [256]byte) {
	for b := range t {
		r := byte(b)
		for range 8 {
			carry := r >> 7
			r = r<<1 ^ carry*0x07
		}
		t[b] = r
	}
	return t
}()

// HEC returns the header check of b, which is the first four bytes of a header: 0x55 for
// zeros. (Over the nine bytes "123456789" the same code has the value 0xa1.)
func HEC(b []byte) byte {
	r := byte(0)
	for _, v := range b {
		r = hecRemainders[r^v]
	}
	return r ^ coset
}
