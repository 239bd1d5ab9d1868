package framescmd_test

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// computeSums has Linux compute the checksums of what an interface of this thread's network
// namespace sends, as ethtool -K NAME tx off does.
func computeSums(name string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	words := [2]uint32{0x17, 0} // ETHTOOL_STXCSUM
	var request struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}
	copy(request.name[:unix.IFNAMSIZ-1], name)
	request.data = unsafe.Pointer(&words)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request))); errno != 0 {
		return errno
	}
	return nil
}
