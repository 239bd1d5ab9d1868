package userfault

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/via"
)

// Object is a userfaultfd. Its methods may be called by several goroutines, Read by one.
type Object struct {
	fd int
	// file owns fd, and waits for it.
	file *os.File
	in   [maxEvents * messageSize]byte
	// UserModeOnly: accesses of the kernel, such as read(2) into missing pages, fail with
	// EFAULT instead of being reported. Known to who has made the object.
	UserModeOnly bool
}

const maxEvents = 64

// Event is a fault: a thread waits.
type Event struct {
	// Address where, rounded down to a page.
	Address uint64
	// Write: the thread was writing.
	Write bool
	// Protected: there is a page, and it is protected against writing.
	Protected bool
}

// Open makes an object for the memory of this process, with faults of the kernel if this
// process may have those. It fails with a *via.Error that wraps ErrNoKernel, ErrNoRights or
// ErrTooOld.
func Open() (*Object, error) {
	fd, limited, err := openBest()
	if err != nil {
		return nil, err
	}
	if err := ioctl(fd, readWrite, ioctlAPI, &apiArgument{API: apiVersion, Features: featuresNeeded}); err != nil {
		unix.Close(fd)
		return nil, &via.Error{Op: "use userfaultfd", Err: fmt.Errorf("%w: %w", ErrTooOld, err), Hint: HintTooOld}
	}
	o := own(fd)
	o.UserModeOnly = limited
	return o, nil
}

// openBest tries the ways to an object, the one with most rights first.
func openBest() (fd int, userOnly bool, err error) {
	const op = "make a userfaultfd"
	fd, err = open(0)
	if errors.Is(err, unix.EPERM) {
		if device, e := unix.Open("/dev/userfaultfd", unix.O_RDWR|unix.O_CLOEXEC, 0); e == nil {
			fd, e = openBy(device)
			unix.Close(device)
			if e == nil {
				return fd, false, nil
			}
		}
		fd, err = open(userModeOnly)
		userOnly = true
	}
	switch {
	case err == nil:
		return fd, userOnly, nil
	case errors.Is(err, unix.ENOSYS):
		err = &via.Error{Op: op, Err: fmt.Errorf("%w: %w", ErrNoKernel, err), Hint: HintNoKernel}
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EINVAL): // EINVAL: before 5.11
		err = &via.Error{Op: op, Err: fmt.Errorf("%w: %w", ErrNoRights, err), Hint: HintNoRights}
	default:
		err = &via.Error{Op: op, Err: err}
	}
	return -1, false, err
}

// Take makes an object of a descriptor that another process has passed, and owns it. It
// fails with ErrNotObject, and then does not.
func Take(fd int) (*Object, error) {
	name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil || name != "anon_inode:[userfaultfd]" {
		return nil, &via.Error{Op: "take a userfaultfd", Err: fmt.Errorf("%w: %s", ErrNotObject, name)}
	}
	// Else reading would hold a thread, and could not be ended.
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, &via.Error{Op: "take a userfaultfd", Err: err}
	}
	return own(fd), nil
}

func own(fd int) *Object { return &Object{fd: fd, file: os.NewFile(uintptr(fd), "userfaultfd")} }

// File is the descriptor, to be passed to another process. The object keeps it.
func (o *Object) File() *os.File { return o.file }

// Close closes the descriptor, and ends Read with os.ErrClosed. When the last copy of it in
// any process is closed, missing pages are zeros again. No other method is called then.
func (o *Object) Close() error { return o.file.Close() }

// Register has faults in memory of this process reported: missing pages, and writes to
// protected ones. The memory is a mapping of a memfd, shared, of whole pages.
func (o *Object) Register(memory []byte) error {
	a := registerArgument{Range: rangeArgument{Start: addressOf(memory), Length: uint64(len(memory))}, Mode: registerMissing | registerProtect}
	if err := ioctl(o.fd, readWrite, ioctlRegister, &a); err != nil {
		return failed("register memory with userfaultfd", err)
	}
	if a.Ioctls&rangeIoctlsNeeded != rangeIoctlsNeeded {
		return &via.Error{Op: "register memory with userfaultfd", Err: ErrTooOld, Hint: HintTooOld}
	}
	return nil
}

// Address of memory of this process, as the other methods of the process that handles its
// faults want it.
func Address(memory []byte) uint64 { return addressOf(memory) }

// Read waits for faults and stores them in events, as many as there are room and faults. It
// fails with os.ErrClosed after Close.
func (o *Object) Read(events []Event) (int, error) {
	n, err := o.file.Read(o.in[:min(len(events), maxEvents)*messageSize])
	if err != nil {
		return 0, err
	}
	found := 0
	for at := 0; at+messageSize <= n; at += messageSize {
		m := o.in[at : at+messageSize]
		if m[0] != eventPageFault {
			continue // none that was asked for
		}
		flags := binary.NativeEndian.Uint64(m[messageFlags:])
		events[found] = Event{Address: binary.NativeEndian.Uint64(m[messageAddress:]),
			Write: flags&faultWrite != 0, Protected: flags&faultProtected != 0}
		found++
	}
	return found, nil
}

// Copy puts pages in place where none are, from memory of this process, protected against
// writing or not, and wakes who waits for them. It fails with a *via.Error that wraps
// ErrGone, ErrPresent or ErrNoMemory.
func (o *Object) Copy(to uint64, from []byte, protected bool) error {
	for len(from) > 0 {
		a := copyArgument{To: to, From: addressOf(from), Length: uint64(len(from))}
		if protected {
			a.Mode = copyProtected
		}
		err := ioctl(o.fd, readWrite, ioctlCopy, &a)
		if a.Copied > 0 {
			to, from = to+uint64(a.Copied), from[a.Copied:]
		}
		// EAGAIN: a part was copied, or the process is changing its mappings.
		if err != nil && !errors.Is(err, unix.EAGAIN) {
			return failed("put pages in place", err)
		}
	}
	return nil
}

// Protect protects pages against writing: after it no write of before is under way.
func (o *Object) Protect(start, length uint64) error { return o.protect(start, length, protectOn) }

// Unprotect ends that, and wakes who waits.
func (o *Object) Unprotect(start, length uint64) error { return o.protect(start, length, 0) }

func (o *Object) protect(start, length, mode uint64) error {
	a := protectArgument{Range: rangeArgument{Start: start, Length: length}, Mode: mode}
	for {
		switch err := ioctl(o.fd, readWrite, ioctlProtect, &a); {
		case err == nil:
			return nil
		case !errors.Is(err, unix.EAGAIN):
			return failed("protect pages", err)
		}
	}
}

// Wake lets the threads that wait for pages look again.
func (o *Object) Wake(start, length uint64) error {
	if err := ioctl(o.fd, read, ioctlWake, &rangeArgument{Start: start, Length: length}); err != nil {
		return failed("wake threads", err)
	}
	return nil
}

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

// causes are the errors of this package for those of the kernel.
var causes = map[error]error{
	unix.ESRCH: ErrGone, unix.ENOENT: ErrGone,
	unix.EFAULT: ErrGone, // the file is shorter than the page's place in it: it is cut to end a mapping
	unix.EEXIST: ErrPresent, unix.ENOMEM: ErrNoMemory,
}

func failed(op string, err error) error {
	e := &via.Error{Op: op, Err: err}
	if cause := causes[err]; cause != nil {
		e.Err = fmt.Errorf("%w: %w", cause, err)
	}
	if errors.Is(err, unix.ENOMEM) {
		e.Hint = "give less local memory to the mapping, or raise MemoryMax= of the service"
	}
	return e
}
