package vfio

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// procmapQuery is struct procmap_query of linux/fs.h, since Linux 6.11: what is mapped at
// an address.
type procmapQuery struct {
	size, queryFlags, queryAddress    uint64
	start, end, flags                 uint64
	pageSize, offset, inode           uint64
	major, minor, nameSize, buildSize uint32
	name, build                       uint64
}

// From linux/fs.h. Readable and writable are bits of procmapQuery.flags.
const (
	procmapIoctl    = 0xc0686611 // PROCMAP_QUERY
	procmapReadable = 0x01
	procmapWritable = 0x02
)

// askAccessible is accessible, of the file /proc/self/maps that fd is, for kernels that
// answer for one address: reading the file takes ten times as long. It fails with ENOTTY
// for others.
func askAccessible(fd int, first, last uint64) (flags DMAFlags, at uint64, err error) {
	flags = DMARead | DMAWrite
	for at = first; ; {
		q := procmapQuery{queryAddress: at}
		q.size = uint64(unsafe.Sizeof(q))
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), procmapIoctl, uintptr(unsafe.Pointer(&q)))
		switch {
		case errno == unix.ENOENT:
			return 0, at, ErrNotMapped
		case errno != 0:
			return 0, at, errno
		case q.start > at || q.end <= at:
			return 0, at, unix.EBADMSG
		case q.flags&procmapReadable == 0:
			return 0, at, ErrNotMapped
		case q.flags&procmapWritable == 0:
			flags = DMARead
		}
		if q.end > last {
			return flags, 0, nil
		}
		at = q.end
	}
}
