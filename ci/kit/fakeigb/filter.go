package fakeigb

import (
	"encoding/binary"

	"github.com/trapeze-nic/trapeze/ci/kit/fakepci"
)

// Arrive has a frame arrive from the wire: it is delivered if the filters let it through,
// to the queue that the hash of its addresses gives.
func (d *Device) Arrive(frame []byte) bool {
	queue, ok, status, vlan, low := 0, false, uint64(0), uint16(0), uint64(0)
	d.With(func() {
		ok = d.accepts(frame)
		if d.Get(CTRL)&(1<<30) != 0 && isTagged(frame) {
			status, vlan = VLAN, binary.BigEndian.Uint16(frame[14:])
			frame = append(append([]byte(nil), frame[:12]...), frame[16:]...)
		}
		if d.Get(MRQC)&7 == 2 && len(frame) >= 34 && frame[12] == 8 && frame[13] == 0 {
			hash := fakepci.Toeplitz(d.Registers[RSSRK:], frame[26:34])
			queue = int(d.Registers[RETA+hash&127])
			low = uint64(hash)<<32 | 2
		}
	})
	return ok && d.Deliver(queue, frame, status, vlan, low)
}

func isTagged(frame []byte) bool { return len(frame) >= 18 && frame[12] == 0x81 && frame[13] == 0 }

// accepts decides by RCTL, the address, the table of groups and the one of VLANs.
func (d *Device) accepts(frame []byte) bool {
	rctl := d.Get(RCTL)
	to := frame[:6]
	own := true
	for i, b := range to {
		own = own && b == d.Registers[RAL+i]
	}
	hash := (uint32(to[5])<<8 | uint32(to[4])) >> 4
	group := to[0]&1 != 0
	broadcast := binary.LittleEndian.Uint32(to) == 0xffffffff && to[4] == 0xff && to[5] == 0xff
	switch {
	case rctl&2 == 0, rctl&(1<<5) != 0 && uint32(len(frame)+4) > d.Get(RLPML):
		return false
	case rctl&(1<<18) != 0 && isTagged(frame):
		id := uint32(binary.BigEndian.Uint16(frame[14:])) & 0xfff
		if d.Get(VFTA+4*uint64(id>>5))&(1<<(id&31)) == 0 {
			return false
		}
	}
	switch {
	case own && d.Get(RAH)&(1<<31) != 0, broadcast && rctl&(1<<15) != 0:
		return true
	case group:
		return rctl&(1<<4) != 0 || d.Get(MTA+4*uint64(hash>>5))&(1<<(hash&31)) != 0
	}
	return rctl&(1<<3) != 0
}
