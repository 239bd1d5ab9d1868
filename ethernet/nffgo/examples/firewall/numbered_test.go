//go:build nffgo

package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// aclRules drop a fifth of the frames.
const aclRules = `ANY ANY UDP ANY 4080 Reject
192.0.2.0/24 ANY UDP ANY ANY Accept
`

// mostBytes is the length of the longest frame, in bytes.
const mostBytes = 1514

// Where things are in a frame: Ethernet, IPv4, UDP, a number of 32 bits.
const (
	atIP, atUDP, atNumber, atPayload = 14, 34, 42, 46
	shortest                         = 60
)

// isDropped reports whether the rules drop a frame.
func isDropped(number int) bool { return number%5 == 3 }

// header is that of all frames; their lengths, ports and numbers differ.
var header = [atPayload]byte{
	2, 0, 0, 0, 0, 0xbb, 2, 0, 0, 0, 0, 0xaa, 0x08, 0x00,
	0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 198, 51, 100, 2,
}

// payload stands in frames behind their number.
var payload = func() (p [mostBytes + 256]byte) {
	for i := range p {
		p[i] = byte(i*7 + i>>8*3)
	}
	return p
}()

// frameLength is the length of a frame in bytes: 60 to 1514. mostBytes are short.
func frameLength(number int) int {
	if number%16 != 0 {
		return shortest + number*13%70
	}
	return shortest + number*389%(mostBytes-shortest+1)
}

// fillFrame makes frame number in b, which has its length.
func fillFrame(b []byte, number int) {
	copy(b, header[:])
	binary.BigEndian.PutUint16(b[atIP+2:], uint16(len(b)-atIP))
	port := uint16(2000 + number%1000)
	if isDropped(number) {
		port = 4080
	}
	binary.BigEndian.PutUint16(b[atUDP+2:], port)
	binary.BigEndian.PutUint16(b[atUDP+4:], uint16(len(b)-atUDP))
	binary.BigEndian.PutUint32(b[atNumber:], uint32(number))
	copy(b[atPayload:], payload[number%256:])
}

// frameCheck takes frames as they arrive. The zero value expects frames from 0 on.
type frameCheck struct {
	// All: nothing is dropped.
	All  bool
	next int
	want [mostBytes]byte
}

// Next is the number of the frame that is expected next: those before have come, or were
// to be dropped.
func (c *frameCheck) Next() int {
	for !c.All && isDropped(c.next) {
		c.next++
	}
	return c.next
}

// Frame checks a frame, whatever its buffer does afterwards.
func (c *frameCheck) Frame(b []byte) error {
	n := c.Next()
	want := c.want[:frameLength(n)]
	fillFrame(want, n)
	if !bytes.Equal(b, want) {
		number := -1
		if len(b) >= atPayload {
			number = int(binary.BigEndian.Uint32(b[atNumber:]))
		}
		return fmt.Errorf("frame %d came, of %d bytes; expected %d, of %d bytes", number, len(b), n, len(want))
	}
	c.next++
	return nil
}
