package machine

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/abi"
)

// What is wrong with maps, as errors.Is finds it.
var (
	// ErrMap: a map that no image has, or maps that are not those of a program.
	ErrMap = errors.New("no such map")
	// ErrStorage: the memory for a map does not suit it.
	ErrStorage = errors.New("bad map storage")
)

// Reasons for which a run is stopped.
var (
	// ErrBudget: the run took more instructions than the hook allows.
	ErrBudget = errors.New("budget of instructions used up")
	// ErrTrap: a load, store or helper reached outside of what the program may use.
	ErrTrap = errors.New("access outside")
)

// Fault is a run that was stopped. The program has no answer; what it wrote until
// then stays written.
type Fault struct {
	Hook abi.Hook
	// Instruction is the 8-byte slot at which it was noticed, counted from 0. A
	// budget is looked at where a program jumps back or ends.
	Instruction int
	Reason      error // ErrBudget or ErrTrap
}

func (f *Fault) Error() string {
	return fmt.Sprintf("%v: instruction %d: %v", f.Hook, f.Instruction, f.Reason)
}

// Unwrap returns Reason.
func (f *Fault) Unwrap() error { return f.Reason }

// Errno is why a map operation failed: the error number that the Linux kernel has
// for the same operation. Programs see it negated. Zero is success and not an error.
type Errno = unix.Errno

// Errors of map operations.
const (
	// ErrNoKey: the key is not in the map.
	ErrNoKey = unix.ENOENT
	// ErrKeyExists: the key is there, and was only to be inserted.
	ErrKeyExists = unix.EEXIST
	// ErrFull: the map has no room, or an array no such entry.
	ErrFull = unix.E2BIG
	// ErrInvalid: unknown flags, or an entry of an array was to be deleted.
	ErrInvalid = unix.EINVAL
	// ErrReadOnly: the map is read-only.
	ErrReadOnly = unix.EPERM
)
