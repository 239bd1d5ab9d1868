package kernel

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

func (linux) ioctl(fd int, request uint32, arg []byte) (int, error) {
	return retry(func() (int, error) {
		n, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(request), uintptr(unsafe.Pointer(unsafe.SliceData(arg))))
		return result(n, errno)
	})
}

func (linux) ioctlNumber(fd int, request uint32, arg uintptr) (int, error) {
	return retry(func() (int, error) {
		n, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(request), arg)
		return result(n, errno)
	})
}

func result(n uintptr, errno unix.Errno) (int, error) {
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// blind maps private copies of a file of ones over b, piece by piece, so that
// the memory is device or ones at every moment and takes no room. A goroutine that still
// stores into it gets a page of his own.
func (linux) blind(b []byte) error {
	fd, err := onesFile()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for at := 0; at < len(b); at += onesSize {
		size := min(onesSize, len(b)-at)
		_, err := unix.MmapPtr(fd, 0, unsafe.Pointer(&b[at]), uintptr(size),
			unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_FIXED)
		if err != nil {
			return err
		}
	}
	return nil
}
