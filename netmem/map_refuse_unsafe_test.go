package netmem_test

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// refuseVariable makes a run of this test binary get an errno, whose number it names, for
// userfaultfd(2), as containers have it.
const refuseVariable = "TRAPEZE_TEST_REFUSE"

func errnoText(e syscall.Errno) string { return strconv.Itoa(int(e)) }

// A variable's initializer runs before the init functions that map memory.
var _ = refuse(os.Getenv(refuseVariable))

func refuse(errno string) bool {
	n, err := strconv.ParseUint(errno, 10, 16)
	if err != nil {
		return false
	}
	// seccomp_data begins with the number of the call (linux/seccomp.h). The
	// device /dev/userfaultfd refuses with it.
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_USERFAULTFD, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(n)},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_IOCTL, Jf: 3},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 24}, // its second argument
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: 0xaa00, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	_ = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	_, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&filter)))
	if e != 0 {
		fmt.Println("seccomp:", e)
	}
	return true
}
