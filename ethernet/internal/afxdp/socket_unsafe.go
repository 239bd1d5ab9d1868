package afxdp

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// registerUMEM makes the buffers of a pool a socket's (XDP_UMEM_REG).
func registerUMEM(fd int, memory []byte, g geometry) error {
	r := unix.XDPUmemReg{Addr: uint64(uintptr(unsafe.Pointer(&memory[0]))), Len: uint64(len(memory)), Size: g.chunk, Headroom: g.headroom}
	if g.unaligned {
		r.Flags = unix.XDP_UMEM_UNALIGNED_CHUNK_FLAG
	}
	_, _, errno := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_XDP, unix.XDP_UMEM_REG,
		uintptr(unsafe.Pointer(&r)), unsafe.Sizeof(r), 0)
	if errno != 0 {
		return os.NewSyscallError("setsockopt XDP_UMEM_REG", errno)
	}
	return nil
}

// socketOption reads an option of a socket, which has to be as long as T.
func socketOption[T unix.XDPMmapOffsets | unix.XDPStatistics | uint32](fd, option int) (v T, err error) {
	size := uint32(unsafe.Sizeof(v))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_XDP, uintptr(option),
		uintptr(unsafe.Pointer(&v)), uintptr(unsafe.Pointer(&size)), 0)
	switch {
	case errno != 0:
		return v, os.NewSyscallError(fmt.Sprintf("getsockopt %d", option), errno)
	case uintptr(size) != unsafe.Sizeof(v):
		return v, fmt.Errorf("getsockopt %d: %d bytes, want %d: %w", option, size, unsafe.Sizeof(v), unix.EOPNOTSUPP)
	}
	return v, nil
}

// ethtool asks a driver for a structure of 32-bit words that begins with the command
// (SIOCETHTOOL).
func ethtool(fd int, name string, words []uint32) error {
	var request struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte // struct ifreq is longer than what is used of it
	}
	copy(request.name[:unix.IFNAMSIZ-1], name)
	request.data = unsafe.Pointer(&words[0])
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request))); errno != 0 {
		return os.NewSyscallError("ioctl SIOCETHTOOL", errno)
	}
	return nil
}
