package fakemqnic

import (
	"github.com/trapeze-nic/trapeze/ci/kit/fakepci"
	"github.com/trapeze-nic/trapeze/internal/inetsum"
)

// hashKey is the fixed key of the hash: that which Microsoft's documentation of RSS verifies with.
var hashKey = [40]byte{
	0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0,
	0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c,
	0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
}

// Arrive has a frame arrive from the wire: it is summed, hashed, and delivered to the queue of its
// hash.
func (d *Device) Arrive(k int, frame []byte) bool {
	var c Completion
	queue := 0
	d.With(func() {
		c.Sum = inetsum.Of(frame[min(14, len(frame)):])
		c.Hash, c.HashType = hash(frame)
		at := d.Control(k) + QueueMap
		queue = int(d.Get(d.Table(k) + 4*uint64(c.Hash&d.Get(at+0x14)&63)))
	})
	return d.Deliver(k, queue, frame, c)
}

// hash is Toeplitz over the addresses and ports of IPv4, and what it is over.
func hash(frame []byte) (h uint32, kind byte) {
	if len(frame) < 34 || frame[12] != 8 || frame[13] != 0 {
		return 0, 0
	}
	input := append([]byte(nil), frame[26:34]...)
	kind = 1
	if l4 := 14 + int(frame[14]&15)*4; len(frame) >= l4+4 {
		switch frame[23] {
		case 6:
			kind |= 4
			input = append(input, frame[l4:l4+4]...)
		case 17:
			kind |= 8
			input = append(input, frame[l4:l4+4]...)
		}
	}
	return fakepci.Toeplitz(hashKey[:], input), kind
}
