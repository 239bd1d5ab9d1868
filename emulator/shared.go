package emulator

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/memfile"
)

// sharedMemory is the memory of a BAR that can be mapped: a sealed anonymous
// file, so that another mapping of it, in this process or another, cannot be
// made to fault.
type sharedMemory struct {
	fd    int
	bytes []byte
}

func newSharedMemory(name string, size uint64) (*sharedMemory, error) {
	fd, b, err := memfile.Map(name, size, memfile.Options{Seals: memfile.Final})
	if err != nil {
		return nil, err
	}
	return &sharedMemory{fd, b}, nil
}

// newMemory makes the memory of BAR4, and that of BAR2 unless its doorbells are trapped.
func (d *Device) newMemory() (sram, doorbells *sharedMemory, err error) {
	if sram, err = newSharedMemory("sram", d.bars[datasheet.BARSRAM].size); err != nil || !d.mapped {
		return sram, nil, err
	}
	if doorbells, err = newSharedMemory("doorbells", d.bars[datasheet.BARDoorbells].size); err != nil {
		sram.close()
		return nil, nil, err
	}
	return sram, doorbells, nil
}

// mapPart maps a part of the memory once more. Both numbers are multiples of
// the page size.
func (m *sharedMemory) mapPart(offset, size uint64) ([]byte, error) {
	b, err := unix.Mmap(m.fd, int64(offset), int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return b, os.NewSyscallError("mmap", err)
}

// zero clears the memory from an offset on. Untouched pages stay
// untouched.
func (m *sharedMemory) zero(from int64) {
	if unix.Fallocate(m.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, from, int64(len(m.bytes))-from) != nil {
		clear(m.bytes[from:]) // the file system cannot punch holes
	}
}

// close gives the memory back; other mappings of it stay.
func (m *sharedMemory) close() {
	if m == nil {
		return
	}
	if m.bytes != nil {
		_ = unix.Munmap(m.bytes)
		m.bytes = nil
	}
	if m.fd >= 0 {
		_ = unix.Close(m.fd)
		m.fd = -1
	}
}
