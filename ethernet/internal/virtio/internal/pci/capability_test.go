package pci

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/vfio"
)

// space makes configuration space with virtio's capabilities: type, BAR, offset, length.
func space(caps ...[4]uint32) []byte {
	le := binary.LittleEndian
	b := make([]byte, vfio.ConfigSize)
	le.PutUint32(b, 0x1041_1af4)
	le.PutUint16(b[vfio.ConfigStatus:], 0x10)
	le.PutUint32(b[0x10+4*4:], 0xc) // BAR4: 64-bit, prefetchable
	at := 0x40
	b[0x34] = byte(at)
	for i, c := range caps {
		next := at + 20
		copy(b[at:], []byte{capabilityVendor, byte(next), 20, byte(c[0]), byte(c[1])})
		le.PutUint32(b[at+8:], c[2])
		le.PutUint32(b[at+12:], c[3])
		le.PutUint32(b[at+16:], 4)
		if i == len(caps)-1 {
			b[at+1] = 0
		}
		at = next
	}
	return b
}

var (
	good = [][4]uint32{{typeCommon, 4, 0, 0x1000}, {3, 4, 0x1000, 0x1000}, {typeDevice, 4, 0x2000, 0x1000}, {typeNotify, 4, 0x3000, 0x1000}}
)

// with returns good with one capability replaced.
func with(i int, c [4]uint32) []byte {
	caps := append([][4]uint32(nil), good...)
	caps[i] = c
	return space(caps...)
}

const barSize = 0x4000

// sizes says that BAR4 is the only one, of memory.
func sizes(index int) uint64 {
	if index == 4 {
		return barSize
	}
	return 0
}

func TestLayout(t *testing.T) {
	loop := space(good...)
	loop[0x40+20+1] = 0x40
	for _, tt := range []struct {
		name  string
		space []byte
		want  error
	}{
		{"good", space(good...), nil},
		{"a loop", loop, vfio.ErrBadConfig},
		{"none", space(), ethernet.ErrNotSupported},
		{"no notifications", space(good[:3]...), ethernet.ErrNotSupported},
		{"leaves its BAR", with(0, [4]uint32{typeCommon, 4, 0x3800, 0x1000}), ethernet.ErrProtocol},
		{"begins behind its BAR", with(0, [4]uint32{typeCommon, 4, 0xffffff00, 0x40}), ethernet.ErrProtocol},
		{"all ones", with(3, [4]uint32{typeNotify, 4, 0xffffffff, 0xffffffff}), ethernet.ErrProtocol},
		{"too short", with(0, [4]uint32{typeCommon, 4, 0, 55}), ethernet.ErrProtocol},
		{"no bytes", with(3, [4]uint32{typeNotify, 4, 0x3000, 1}), ethernet.ErrProtocol},
		{"misaligned", with(0, [4]uint32{typeCommon, 4, 2, 0x100}), ethernet.ErrProtocol},
		{"a BAR of ports", with(0, [4]uint32{typeCommon, 0, 0, 0x1000}), ethernet.ErrNotSupported},
		{"a BAR that there is not", with(0, [4]uint32{typeCommon, 200, 0, 0x1000}), ethernet.ErrNotSupported},
		{"an upper half", with(0, [4]uint32{typeCommon, 5, 0, 0x1000}), ethernet.ErrNotSupported},
	} {
		if tt.name == "none" {
			tt.space[0x34] = 0
		}
		c, err := vfio.ParseConfig(tt.space)
		if err == nil {
			_, err = findLayout(c, tt.space, sizes)
		}
		should.Fail(t, err, tt.want, "%s", tt.name)
	}
	// The first that can be used is taken.
	b := space(append([][4]uint32{{typeNotify, 0, 0, 2}, {typeNotify, 4, 0x3800, 0x10}}, good...)...)
	c := must.Get(vfio.ParseConfig(b))(t)
	l, err := findLayout(c, b, sizes)
	should.Hold(t, err == nil && l.notify == (place{4, 0x3800, 0x10}) && l.multiplier == 4 && l.common == (place{4, 0, 0x1000}),
		"%+v, %v", l, err)
}

// FuzzLayout walks configuration space that a device has made up.
func FuzzLayout(f *testing.F) {
	f.Add(space(good...))
	f.Add(with(0, [4]uint32{typeCommon, 4, 0x3fc8, 56}))
	f.Add(with(3, [4]uint32{typeNotify, 4, 0xfffffffe, 0xffffffff}))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := vfio.ParseConfig(b)
		if err != nil {
			return
		}
		l, err := findLayout(c, b, sizes)
		if err != nil {
			must.Hold(t, errors.Is(err, ethernet.ErrProtocol) || errors.Is(err, ethernet.ErrNotSupported), "%v", err)
			return
		}
		for _, p := range []place{l.common, l.notify, l.device} {
			must.Hold(t, p.bar == 4 && p.offset <= barSize && p.length <= barSize-p.offset, "%+v leaves its BAR", p)
		}
		must.Hold(t, l.common.length >= leastCommon && l.notify.length >= leastNotify && l.device.length >= leastDevice,
			"%+v is too short", l)
	})
}
