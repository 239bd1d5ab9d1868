// Package mac has the addresses of stations (IEEE 802, 8.2).
package mac

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
)

// MAC is the address of a station, or of a group of them.
type MAC [6]byte

// Random returns the address of a station that is administered locally.
func Random() (m MAC) {
	_, _ = rand.Read(m[:]) // it never fails
	m[0] = m[0]&^1 | 2
	return m
}

// Set reads the address of a station: six bytes in hexadecimal digits, with colons or dashes between them.
func (m *MAC) Set(text string) error {
	b, err := net.ParseMAC(text)
	if err != nil || len(b) != len(m) {
		return errors.New("it is six bytes such as 02:00:00:00:00:01")
	}
	read := MAC(b)
	if !read.IsStation() {
		return errors.New("it is the address of one station: not zero, and not a group's")
	}
	*m = read
	return nil
}

// String returns the address as "02:00:00:00:00:01".
func (m MAC) String() string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}

// IsMulticast reports whether the address is that of a group, broadcast included.
func (m MAC) IsMulticast() bool { return m[0]&1 != 0 }

// IsStation reports whether the address can be one station's: neither a group's nor zero.
func (m MAC) IsStation() bool { return !m.IsMulticast() && m != MAC{} }
