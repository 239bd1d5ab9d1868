package userfault

import (
	"structs"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Numbers and layouts of include/uapi/linux/userfaultfd.h.
const (
	apiVersion = 0xaa

	// userModeOnly (UFFD_USER_MODE_ONLY): faults of the kernel on behalf of the process are
	// not reported; they fail. Since Linux 5.11.
	userModeOnly = 1

	featureProtectFlag          = 1 << 0  // UFFD_FEATURE_PAGEFAULT_FLAG_WP
	featureMissingShmem         = 1 << 5  // UFFD_FEATURE_MISSING_SHMEM
	featureProtectShmem         = 1 << 12 // UFFD_FEATURE_WP_HUGETLBFS_SHMEM
	featuresNeeded              = featureProtectFlag | featureMissingShmem | featureProtectShmem
	registerMissing             = 1 << 0 // UFFDIO_REGISTER_MODE_MISSING
	registerProtect             = 1 << 1 // UFFDIO_REGISTER_MODE_WP
	copyProtected               = 1 << 1 // UFFDIO_COPY_MODE_WP
	protectOn                   = 1 << 0 // UFFDIO_WRITEPROTECT_MODE_WP
	eventPageFault              = 0x12   // UFFD_EVENT_PAGEFAULT
	faultWrite                  = 1 << 0 // UFFD_PAGEFAULT_FLAG_WRITE
	faultProtected              = 1 << 1 // UFFD_PAGEFAULT_FLAG_WP
	messageSize                 = 32     // struct uffd_msg
	messageFlags                = 8
	messageAddress              = 16
	rangeIoctlsNeeded           = 1<<ioctlWake | 1<<ioctlCopy | 1<<ioctlProtect
	ioctlRegister               = 0x00
	ioctlWake                   = 0x02
	ioctlCopy                   = 0x03
	ioctlProtect                = 0x06
	ioctlAPI                    = 0x3f
	ioctlType                   = 0xaa
	requestNew          uintptr = ioctlType << 8 // USERFAULTFD_IOC_NEW, of /dev/userfaultfd
)

type apiArgument struct {
	_        structs.HostLayout
	API      uint64
	Features uint64
	Ioctls   uint64
}

type rangeArgument struct {
	_      structs.HostLayout
	Start  uint64
	Length uint64
}

type registerArgument struct {
	_      structs.HostLayout
	Range  rangeArgument
	Mode   uint64
	Ioctls uint64
}

type copyArgument struct {
	_      structs.HostLayout
	To     uint64
	From   uint64
	Length uint64
	Mode   uint64
	Copied int64
}

type protectArgument struct {
	_     structs.HostLayout
	Range rangeArgument
	Mode  uint64
}

// Directions of ioctls.
const (
	read      = 2
	readWrite = 3
)

// ioctl has a number that _IOWR or _IOR makes (asm-generic/ioctl.h) of those given and of the size of its argument.
func ioctl[T any](fd int, direction, number uintptr, argument *T) error {
	request := direction<<30 | unsafe.Sizeof(*argument)<<16 | ioctlType<<8 | number
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(unsafe.Pointer(argument)))
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
		default:
			return errno
		}
	}
}

func addressOf(memory []byte) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(memory))))
}

// descriptor is that of a system call which makes one.
func descriptor(fd, _ uintptr, errno syscall.Errno) (int, error) {
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

// open makes a userfaultfd by the system call.
func open(flags uintptr) (int, error) {
	return descriptor(unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|unix.O_NONBLOCK|flags, 0, 0))
}

// openBy makes one by the device /dev/userfaultfd, whose permissions say who may.
func openBy(device int) (int, error) {
	return descriptor(unix.Syscall(unix.SYS_IOCTL, uintptr(device), requestNew, unix.O_CLOEXEC|unix.O_NONBLOCK))
}
