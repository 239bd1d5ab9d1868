package vfiouser_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser/internal/protocol"
)

// TestVersion: nothing goes before VERSION, and what QEMU can take is short.
func TestVersion(t *testing.T) {
	r := serve(t, vfiouser.ServerOptions{})
	x := connect(t, r, false)
	x.refuses(unix.EINVAL, cmdGetInfo, pack(16, 0, 0, 0))
	x.refuses(unix.EINVAL, cmdReset, nil)
	x.refuses(unix.EINVAL, cmdVersion, pack(uint16(1), uint16(0)))
	x.refuses(unix.EINVAL, cmdVersion, pack(uint16(0)))
	x.refuses(unix.EINVAL, cmdVersion, pack(uint16(0), uint16(0), "{}"))
	x.refuses(unix.EINVAL, cmdVersion, pack(uint16(0), uint16(0), "no JSON\x00"))
	x.refuses(unix.EINVAL, cmdVersion, pack(uint16(0), uint16(0), "[]\x00"))
	a := x.ok(cmdVersion, pack(uint16(0), uint16(0), versionText))
	should.Hold(t, a.size <= 214, "%d bytes, QEMU takes 214", a.size)
	want := pack(uint16(0), uint16(0), `{"capabilities":{"max_msg_fds":16,"max_data_xfer_size":1048576,"max_dma_maps":65535,"pgsizes":4096}}`+"\x00")
	should.Be(t, string(a.payload), string(want))
	x.refuses(unix.EINVAL, cmdVersion, pack(uint16(0), uint16(0)))
	x.alive()
}

// TestLikeQEMU asks what QEMU asks, in its order, and checks the sizes that it
// has room for.
func TestLikeQEMU(t *testing.T) {
	r := serve(t, vfiouser.ServerOptions{})
	x := connect(t, r, true)
	ram := memfd(t, 256*page, unix.MFD_ALLOW_SEALING)
	// Memory comes first, in a batch: the replies are read later. Firmware is
	// read only and not shared.
	maps := [][]byte{dmaMap(3, 0, 0, 160*page), dmaMap(1, 0, 0xc0000, 64*page), dmaMap(3, 192*page, 0x100000, 64*page)}
	for i, m := range maps {
		if i == 1 {
			x.send(uint16(i), cmdDMAMap, 0, m)
		} else {
			x.send(uint16(i), cmdDMAMap, 0, m, ram)
		}
	}
	for i := range maps {
		a, err := x.receive()
		must.Hold(t, err == nil && int(a.id) == i && a.size == 16 && a.flags == flagReply, "reply %d: %v, %v", i, a, err)
	}
	should.Same(t, x.ok(cmdGetInfo, pack(16, 0, 0, 0)).payload, pack(16, 3, 9, 5))
	// Registers, and memory that can be mapped.
	x.region(0, 32, pack(32, 3, 0, 0, uint64(page), uint64(0)), 0)
	x.region(4, 32, pack(32, 7, 4, 0, uint64(4*page), uint64(0)), 1)
	// One with areas: asked again with more room.
	x.region(2, 32, pack(80, 7, 2, 0, uint64(8*page), uint64(0)), 1)
	x.region(2, 80, pack(80, 15, 2, 32, uint64(8*page), uint64(0), uint16(1), uint16(1), 0, 2, 0,
		uint64(page), uint64(2*page), uint64(4*page), uint64(page)), 1)
	// A file that is not sealed is not given away.
	x.region(5, 32, pack(32, 3, 5, 0, uint64(page), uint64(0)), 0)
	should.Same(t, x.ok(cmdGetIRQInfo, pack(16, 0, 3, 0)).payload, pack(16, 9, 3, 1))
	a := x.ok(cmdRegionRead, pack(uint64(0), 7, 4096))
	should.Hold(t, a.size == 16+16+4096 && binary.LittleEndian.Uint32(a.payload[16:]) == 0x72501234, "configuration space: %v", a)
	// MSI-X: a vector without eventfd first, then the real ones.
	x.ok(cmdSetIRQs, pack(20, 0x24, 2, 0, 1))
	a0, a1 := eventfd(t, 0, unix.EFD_NONBLOCK), eventfd(t, 0, unix.EFD_NONBLOCK)
	x.ok(cmdSetIRQs, pack(20, 0x24, 2, 0, 2), a0, a1)
	x.ok(cmdSetIRQs, pack(22, 0x22, 2, 0, 2, "\x00\x01"))
	var count [8]byte
	_, err := unix.Read(a0, count[:])
	should.Hold(t, err == unix.EAGAIN, "vector 0: %v, %v", count, err)
	_, err = unix.Read(a1, count[:])
	should.Hold(t, err == nil && count[0] == 1, "vector 1: %v, %v", count, err)
	// The address space changes: all is unmapped, and more than was mapped.
	for _, tt := range []struct {
		flags         int
		address, size uint64
		unmapped      uint64
	}{
		{0, 0, 160 * page, 160 * page}, {0, 0, 160 * page, 0}, {0, 0x100000, 1 << 40, 64 * page},
		{0, 1 << 63, 1 << 63, 0}, {0, 0, 1 << 63, 64 * page}, {2, 0, 0, 0},
	} {
		should.Same(t, x.ok(cmdDMAUnmap, dmaUnmap(tt.flags, tt.address, tt.size)).payload, dmaUnmap(tt.flags, tt.address, tt.unmapped))
	}
	x.ok(cmdReset, nil)
	x.alive()
	r.holds(t, 0, 0)
}

// TestSmallPages: a guest's megabyte comes in 256 pieces of one file.
func TestSmallPages(t *testing.T) {
	r := serve(t, vfiouser.ServerOptions{})
	x := connect(t, r, true)
	ram := memfd(t, 1024*page, unix.MFD_ALLOW_SEALING)
	for i := range uint64(256) {
		x.ok(cmdDMAMap, dmaMap(3, (512+i)*page, 0x40000000+i*page, page), ram)
	}
	r.holds(t, 256, 1)
	r.dev.mu.Lock()
	w := r.dev.windows
	should.Hold(t, len(w) == 256 && address(w[255].bytes) == address(w[0].bytes)+255*page, "%d windows, not side by side", len(w))
	r.dev.mu.Unlock()
	// A copy over all of them.
	must.Get(unix.Pwrite(ram, bytes.Repeat([]byte("abcd"), 128*page/4), 512*page))(t)
	x.ok(cmdRegionWrite, pack(uint64(regSource), 0, 8, uint64(0x40000000)))
	x.ok(cmdRegionWrite, pack(uint64(regTarget), 0, 8, uint64(0x40000000+128*page)))
	x.ok(cmdRegionWrite, pack(uint64(regLength), 0, 4, 128*page))
	x.ok(cmdRegionWrite, pack(uint64(regStart), 0, 4, 1))
	got := make([]byte, 4)
	_, err := unix.Pread(ram, got, 768*page-4)
	should.Hold(t, err == nil && string(got) == "abcd", "the last bytes are %q, %v", got, err)
	// The same mapping again is the same.
	x.ok(cmdDMAMap, dmaMap(3, 512*page, 0x40000000, page), ram)
	should.Same(t, x.ok(cmdDMAUnmap, dmaUnmap(0, 0x40000000, 256*page)).payload, dmaUnmap(0, 0x40000000, 256*page))
}

// TestSingleBytes: messages may come in any pieces.
func TestSingleBytes(t *testing.T) {
	r := serve(t, vfiouser.ServerOptions{})
	for _, piece := range []int{1, 7, 17} {
		x := connect(t, r, false)
		x.piece = piece
		x.ok(cmdVersion, pack(uint16(0), uint16(0), versionText))
		x.ok(cmdDMAMap, dmaMap(3, 0, 0x10000, page), memfd(t, page, 0))
		x.ok(cmdSetIRQs, pack(20, 0x24, 2, 0, 2), eventfd(t, 0, 0), eventfd(t, 0, 0))
		x.ok(cmdRegionWrite, pack(uint64(0), 4, 100, make([]byte, 100)))
		x.refuses(unix.EINVAL, cmdRegionWrite, pack(uint64(0), 4, 100, make([]byte, 99)))
		x.alive()
		must.OK(t, x.c.Close())
	}
}

// TestPostedWrites: no reply, and in order.
func TestPostedWrites(t *testing.T) {
	r := serve(t, vfiouser.ServerOptions{})
	x := connect(t, r, true)
	for i := range 1000 {
		x.send(uint16(i), cmdRegionWrite, flagNoReply, pack(uint64(0), 4, 4, i))
	}
	should.Same(t, x.ok(cmdRegionRead, pack(uint64(0), 4, 4)).payload[16:], pack(999), "the last write")
	should.Be(t, r.Stats().Messages[protocol.CommandRegionWrite], 1000, "writes are counted")
}
