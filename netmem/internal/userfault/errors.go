package userfault

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/via"
)

// Errors of this package come inside a *via.Error.
var (
	// ErrNoKernel: the kernel has no userfaultfd.
	ErrNoKernel = errors.New("the kernel has no userfaultfd")
	// ErrNoRights: this process may not use it.
	ErrNoRights = errors.New("no right to use userfaultfd")
	// ErrTooOld: the kernel's userfaultfd lacks what mapped memory needs.
	ErrTooOld = errors.New("the kernel's userfaultfd cannot protect files in memory against writing")
	// ErrGone: the process whose memory it is has ended, or has unmapped the range.
	ErrGone = errors.New("the memory is gone")
	// ErrPresent: there is a page already where one was to be put. Another process has
	// written to the file.
	ErrPresent = errors.New("there is a page already")
	// ErrNoMemory: the machine, or the control group, has no memory for the page.
	ErrNoMemory = errors.New("no memory for a page")
	// ErrNotObject: a descriptor is something else than a userfaultfd.
	ErrNotObject = errors.New("not a userfaultfd")
)

// What mends each, for errors and for those who look before.
const (
	HintNoKernel = "it takes a kernel with CONFIG_USERFAULTFD=y"
	HintTooOld   = "it takes Linux 5.19 or newer with CONFIG_PTE_MARKER_UFFD_WP=y, on x86-64 or arm64"
	HintNoRights = "sysctl -w vm.unprivileged_userfaultfd=1; in a container, also a seccomp profile that allows userfaultfd"
)

// failed makes the error of an errno.
func failed(op string, err error) error {
	cause, hint := error(nil), ""
	switch {
	case errors.Is(err, unix.ESRCH), errors.Is(err, unix.ENOENT):
		cause = ErrGone
	case errors.Is(err, unix.EFAULT):
		// The file is shorter than the page's place in it: it is cut to end a mapping.
		cause = ErrGone
	case errors.Is(err, unix.EEXIST):
		cause = ErrPresent
	case errors.Is(err, unix.ENOMEM):
		cause, hint = ErrNoMemory, "give less local memory to the mapping, or raise MemoryMax= of the service"
	default:
		return &via.Error{Op: op, Err: err}
	}
	return &via.Error{Op: op, Err: fmt.Errorf("%w: %w", cause, err), Hint: hint}
}
