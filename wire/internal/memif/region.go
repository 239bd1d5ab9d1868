package memif

import (
	"fmt"
	"math"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/memfile"
	"github.com/trapeze-nic/trapeze/internal/passedfd"
)

// region is memory that is shared with the peer.
//
// It is not known when the last user of a frame in it is done: a frame belongs to
// the goroutine that has reserved or received it, for as long as that goroutine likes. So
// memory goes in two steps. retire, at once, puts private memory in its place,
// which frees the peer's; release, when the ports' owner is known to be out of
// it, or when the garbage collector says so, gives back the addresses.
type region struct {
	memory  []byte
	cleanup runtime.Cleanup
}

func newRegion(memory []byte) *region {
	r := &region{memory: memory}
	r.cleanup = runtime.AddCleanup(r, unmap, memory)
	return r
}

// unmap ends a mapping of ours, which cannot fail.
func unmap(memory []byte) { _ = unix.Munmap(memory) }

func (r *region) release() {
	r.cleanup.Stop()
	unmap(r.memory)
}

// mapRegion maps size bytes of the peer's file, which must be memory: touching
// a file on a disk, or in a file system that the peer serves, may take for ever.
// It reports whether the file can be cut off, which ends a program that touches
// it then. Errors wrap ErrMemory.
func mapRegion(file int, size uint64) (_ *region, canVanish bool, err error) {
	bad := func(format string, a ...any) (*region, bool, error) {
		return nil, false, fmt.Errorf("%w: %w", ErrMemory, fmt.Errorf(format, a...))
	}
	// Others are not even asked what they are: the answer may take for ever too.
	if !passedfd.IsMemory(file) {
		return bad("the file is not in memory")
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(file, &fs); err != nil {
		return bad("%w", os.NewSyscallError("fstatfs", err))
	}
	huge := int64(fs.Type) == unix.HUGETLBFS_MAGIC
	// Sealed first: the size that is read then stays. A huge page may be
	// missing for all that.
	canVanish = memfile.Seal(file, unix.F_SEAL_SHRINK) != nil || huge
	var st unix.Stat_t
	if err := unix.Fstat(file, &st); err != nil {
		return bad("%w", os.NewSyscallError("fstat", err))
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return bad("it is no regular file: mode %#o", st.Mode)
	case size == 0 || size > math.MaxInt:
		return bad("a region of %#x bytes", size)
	case huge && (fs.Bsize <= 0 || size%uint64(fs.Bsize) != 0):
		return bad("a region of %#x bytes in pages of %#x", size, fs.Bsize)
	case st.Size < 0 || uint64(st.Size) < size:
		return bad("the file has %#x bytes, the region %#x", st.Size, size)
	}
	memory, err := unix.Mmap(file, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE)
	if err != nil {
		return bad("%w", os.NewSyscallError("mmap", err))
	}
	return newRegion(memory), canVanish, nil
}
