package vfio_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/vfio"
)

// TestMove: memory that has moved is that of the other file, and of its own again when
// it has moved back; the content goes along.
func TestMove(t *testing.T) {
	checkLeaks(t)
	alloc := func(size uint64) *vfio.Memory {
		m := must.Get(vfio.AllocMemory(size, vfio.MemoryOptions{Huge: vfio.HugeNever}))(t)
		t.Cleanup(func() { should.OK(t, m.Close()) })
		return m
	}
	ram, mem := alloc(0x8000), alloc(0x2000)
	own, b := mem.FD(), mem.Bytes()
	b[0], b[0x1fff] = 1, 2
	for _, c := range []struct {
		fd     int
		offset uint64
		want   error
	}{{ram.FD(), 0x800, vfio.ErrMisaligned}, {ram.FD(), 1 << 63, vfio.ErrMisaligned}, {-1, 0, unix.EBADF}} {
		should.Fail(t, mem.Move(c.fd, c.offset), c.want, "move to %d at %#x", c.fd, c.offset)
	}
	must.OK(t, mem.Move(ram.FD(), 0x3000))
	if r := ram.Bytes(); r[0x3000] != 1 || r[0x4fff] != 2 || b[0] != 1 || b[0x1fff] != 2 || mem.FD() != -1 {
		t.Errorf("after moving: %d, %d in the file, %d, %d in memory, descriptor %d", r[0x3000], r[0x4fff], b[0], b[0x1fff], mem.FD())
	}
	should.Fail(t, mem.Move(ram.FD(), 0), vfio.ErrIOVAInUse, "move again")
	ram.Bytes()[0x3001] = 3
	should.Be(t, b[1], 3, "what is written to the file is not seen")
	for range 2 {
		must.OK(t, mem.MoveBack())
		ram.Bytes()[0x3001] = 4
		if b[0] != 1 || b[1] != 3 || b[0x1fff] != 2 || mem.FD() != own {
			t.Errorf("after moving back: %d, %d, %d, descriptor %d", b[0], b[1], b[0x1fff], mem.FD())
		}
	}
	must.OK(t, mem.Move(ram.FD(), 0))
	should.OK(t, mem.Close())
	should.OK(t, mem.MoveBack())
	should.Fail(t, mem.Move(ram.FD(), 0), vfio.ErrClosed, "move what is closed")
}
