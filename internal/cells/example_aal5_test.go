package cells_test

import (
	"errors"
	"fmt"

	"github.com/trapeze-nic/trapeze/internal/cells"
)

// The check values of the two codes, over nine digits.
func ExampleCRC() {
	digits := []byte("123456789")
	fmt.Printf("CRC-32 of AAL5: %08x\n", cells.StartCRC.Update(digits).Sum())
	fmt.Printf("HEC: %02x\n", cells.HEC(digits))
	// Output:
	// CRC-32 of AAL5: fc891918
	// HEC: a1
}

// The header of the last cell of a PDU on channel 42, and one with an error of one bit.
func ExampleHeader() {
	var b [cells.HeaderSize]byte
	cells.Header{VCI: 42, PTI: cells.PTILast}.Put(&b)
	h, err := cells.ParseHeader(&b)
	fmt.Printf("% x: VCI %d, last: %t, %v\n", b, h.VCI, h.Last(), err)
	b[2] ^= 0x10
	_, err = cells.ParseHeader(&b)
	fmt.Println(errors.Is(err, cells.ErrHEC))
	// Output:
	// 00 00 02 a2 18: VCI 42, last: true, <nil>
	// true
}

// Cells of two channels come in turn; each channel has a CRC of its own.
func ExampleAssembly() {
	pdus := [2]string{"a message of more than one cell: so it takes two of them", "short"}
	var cutters [2]cells.Cutter
	var arriving [2]cells.Assembly
	for i, pdu := range pdus {
		if err := cutters[i].Start(len(pdu), 0); err != nil {
			fmt.Println(err)
		}
	}
	for i := 0; cutters[0].Active() || cutters[1].Active(); i = 1 - i {
		if !cutters[i].Active() {
			continue
		}
		var payload [cells.PayloadSize]byte
		bytes, last := cutters[i].Next()
		pdus[i] = pdus[i][copy(payload[:bytes], pdus[i]):]
		cutters[i].Seal(&payload)
		t, err := arriving[i].Add(&payload, last)
		fmt.Printf("channel %d: %2d bytes, last: %-5t length %2d, %v\n", i, bytes, last, t.Length, err)
	}
	// Output:
	// channel 0: 48 bytes, last: false length  0, <nil>
	// channel 1:  5 bytes, last: true  length  5, <nil>
	// channel 0:  8 bytes, last: true  length 56, <nil>
}
