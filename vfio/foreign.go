package vfio

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// ForeignMemory makes a Memory of memory that the program has from elsewhere, such as
// from mmap or a C library's malloc: whole pages, which stay the program's. Close does
// not unmap them, and FD returns -1, as there is no file that another process could
// have, so that devices in other processes refuse it with ErrNotSupported. They must
// stay mapped, as they are, until the device no longer has them: a device in this
// process that touches pages which are gone fails, and one behind an IOMMU goes on with
// private pages.
//
// The flags say what the device may do at most: pages that the program itself may not
// write are for DMARead.
//
// It fails with ErrBadSize for no bytes, ErrMisaligned for parts of pages, ErrGoHeap
// for memory of the Go heap, and ErrNotMapped for memory that the program may not read.
func ForeignMemory(b []byte) (*Memory, DMAFlags, error) {
	page := uint64(os.Getpagesize())
	m := &Memory{b: b, page: page, fd: -1, foreign: true}
	fail := func(err error, hint string) (*Memory, DMAFlags, error) {
		return nil, 0, &Error{Op: fmt.Sprintf("take %#x bytes at %#x for DMA", len(b), m.Address()), Err: err, Hint: hint}
	}
	switch {
	case len(b) == 0:
		return fail(ErrBadSize, "give at least one page")
	case OnGoHeap(b):
		return fail(ErrGoHeap, "the garbage collector does not know what a device uses: take memory from AllocMemory, mmap or C")
	case m.Address()%page != 0 || m.Size()%page != 0:
		return fail(ErrMisaligned, fmt.Sprintf("pages have %d bytes", page))
	}
	fd, err := unix.Open("/proc/self/maps", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fail(err, "what is mapped cannot be read: check that /proc is mounted, and ulimit -n")
	}
	defer unix.Close(fd)
	flags, at, err := accessible(fd, m.Address(), m.Address()+m.Size()-1)
	if err != nil {
		return fail(err, fmt.Sprintf("nothing that can be read is mapped at %#x", at))
	}
	return m, flags, nil
}

// accessible finds in /proc/self/maps, which fd is, what a device may do with the bytes
// from first to last. If it is nothing at all, at is the first byte that cannot be read.
func accessible(fd int, first, last uint64) (flags DMAFlags, at uint64, err error) {
	flags, at, err = askAccessible(fd, first, last)
	if err != unix.ENOTTY {
		return flags, at, err
	}
	return findAccessible(bufio.NewScanner(descriptor(fd)), first, last)
}

// descriptor reads a file that has no position, without the runtime's poller.
type descriptor int

func (d descriptor) Read(p []byte) (int, error) {
	n, err := unix.Read(int(d), p)
	if n == 0 && err == nil {
		return 0, io.EOF
	}
	return max(n, 0), err
}

// findAccessible is accessible for kernels before Linux 6.11, which have to be asked for
// all lines (proc_pid_maps(5)).
func findAccessible(lines *bufio.Scanner, first, last uint64) (flags DMAFlags, at uint64, err error) {
	flags = DMARead | DMAWrite
	for at = first; lines.Scan(); {
		area, rest, _ := strings.Cut(lines.Text(), " ")
		from, to, ok := strings.Cut(area, "-")
		begin, err1 := strconv.ParseUint(from, 16, 64)
		end, err2 := strconv.ParseUint(to, 16, 64)
		if !ok || err1 != nil || err2 != nil || len(rest) < 4 || begin >= end {
			return 0, at, unix.EBADMSG
		}
		switch {
		case end <= at:
			continue
		case begin > at || rest[0] != 'r':
			return 0, at, ErrNotMapped
		case rest[1] != 'w':
			flags = DMARead
		}
		if end > last {
			return flags, 0, nil
		}
		at = end
	}
	if err := lines.Err(); err != nil {
		return 0, at, err
	}
	return 0, at, ErrNotMapped
}

// OnGoHeap reports whether b, which is not empty, is memory that Go's garbage collector
// manages. The runtime does not say so directly: but a runtime.Pinner keeps what it has
// pinned, and that is objects on the heap only ("It's safe to call Pin on non-Go
// pointers, in which case Pin will do nothing"). If a version of the runtime keeps it
// elsewhere, nothing can be told, and everything counts as heap.
func OnGoHeap(b []byte) bool { return !pinsCount() || pins(&b[0]) != 0 || pins(&b[len(b)-1]) != 0 }

// pinsCount reports whether pins can be believed: it is tried with memory on the heap
// and with memory outside.
var pinsCount = sync.OnceValue(func() bool {
	return pins(new([64]byte)) == 1 && pins(&outside) == 0
})

// outside is memory of this program's file.
var outside [64]byte

// pins returns how many objects on the heap have to be pinned for pointer, 0 or 1; -1
// if that cannot be seen.
func pins(pointer any) (n int) {
	defer func() {
		if recover() != nil { // the runtime has reasons not to pin an object
			n = -1
		}
	}()
	var p runtime.Pinner
	defer p.Unpin()
	p.Pin(pointer)
	v := reflect.ValueOf(p)
	if v.NumField() != 1 || v.Field(0).Kind() != reflect.Pointer || v.Field(0).IsNil() {
		return -1
	}
	refs := v.Field(0).Elem().FieldByName("refs")
	if refs.Kind() != reflect.Slice {
		return -1
	}
	return refs.Len()
}
