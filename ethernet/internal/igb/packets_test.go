package igb_test

import (
	"encoding/binary"

	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/internal/inetsum"
)

// udp4 makes a frame with a UDP datagram over IPv4, its checksums right, of a flow that
// port stands for, with so many bytes of payload.
func udp4(to ethernet.MAC, port, payload int) []byte {
	b := porttest.FrameTo(to, 42+payload)
	b[12], b[13] = 8, 0
	ip, udp := b[14:34], b[34:]
	copy(ip, []byte{0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2})
	binary.BigEndian.PutUint16(ip[2:], uint16(28+payload))
	binary.BigEndian.PutUint16(ip[10:], ^inetsum.Of(ip))
	copy(udp, make([]byte, 8))
	binary.BigEndian.PutUint16(udp, uint16(port))
	binary.BigEndian.PutUint16(udp[2:], 9)
	binary.BigEndian.PutUint16(udp[4:], uint16(len(udp)))
	binary.BigEndian.PutUint16(udp[6:], pseudo(ip[12:20], 17, len(udp)))
	binary.BigEndian.PutUint16(udp[6:], ^inetsum.Of(udp))
	return b
}

// pseudo is the sum of a pseudo header: two addresses, a protocol and a length.
func pseudo(addresses []byte, protocol byte, length int) uint16 {
	return inetsum.Of(append(append([]byte(nil), addresses...), 0, protocol, byte(length>>8), byte(length)))
}
