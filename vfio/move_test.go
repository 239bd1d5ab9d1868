package vfio_test

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/vfio"
)

// TestMove: memory that has moved is that of the other file, and of its own again when
// it has moved back; the content goes along.
func TestMove(t *testing.T) {
	checkLeaks(t)
	alloc := func(size uint64) *vfio.Memory {
		m, err := vfio.AllocMemory(size, vfio.MemoryOptions{Huge: vfio.HugeNever})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		})
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
		if err := mem.Move(c.fd, c.offset); !errors.Is(err, c.want) {
			t.Errorf("move to %d at %#x: %v, want %v", c.fd, c.offset, err, c.want)
		}
	}
	if err := mem.Move(ram.FD(), 0x3000); err != nil {
		t.Fatal(err)
	}
	if r := ram.Bytes(); r[0x3000] != 1 || r[0x4fff] != 2 || b[0] != 1 || b[0x1fff] != 2 || mem.FD() != -1 {
		t.Errorf("after moving: %d, %d in the file, %d, %d in memory, descriptor %d", r[0x3000], r[0x4fff], b[0], b[0x1fff], mem.FD())
	}
	if err := mem.Move(ram.FD(), 0); !errors.Is(err, vfio.ErrIOVAInUse) {
		t.Errorf("move again: %v", err)
	}
	ram.Bytes()[0x3001] = 3
	if b[1] != 3 {
		t.Error("what is written to the file is not seen")
	}
	for range 2 {
		if err := mem.MoveBack(); err != nil {
			t.Fatal(err)
		}
		ram.Bytes()[0x3001] = 4
		if b[0] != 1 || b[1] != 3 || b[0x1fff] != 2 || mem.FD() != own {
			t.Errorf("after moving back: %d, %d, %d, descriptor %d", b[0], b[1], b[0x1fff], mem.FD())
		}
	}
	if err := mem.Move(ram.FD(), 0); err != nil {
		t.Fatal(err)
	}
	if err := mem.Close(); err != nil {
		t.Error(err)
	}
	if err := mem.MoveBack(); err != nil {
		t.Error(err)
	}
	if err := mem.Move(ram.FD(), 0); !errors.Is(err, vfio.ErrClosed) {
		t.Errorf("move what is closed: %v", err)
	}
}
