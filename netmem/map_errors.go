package netmem

import (
	"errors"
	"fmt"

	"github.com/trapeze-nic/trapeze/netmem/internal/pager"
	"github.com/trapeze-nic/trapeze/netmem/internal/userfault"
	"github.com/trapeze-nic/trapeze/via"
)

// Errors of mapped memory, to be found with errors.Is inside a *MapError.
var (
	// ErrNoUserfaultfd, ErrUserfaultfdRights, ErrUserfaultfdTooOld: the kernel does not let
	// memory be mapped so. The error's hint says what to change.
	ErrNoUserfaultfd     = userfault.ErrNoKernel
	ErrUserfaultfdRights = userfault.ErrNoRights
	ErrUserfaultfdTooOld = userfault.ErrTooOld
	// ErrLocal: the local memory is too little for the source's pages, or more than this
	// process may have.
	ErrLocal = pager.ErrLimit
	// ErrLocalMemory: there was no memory for a page.
	ErrLocalMemory = userfault.ErrNoMemory
	// ErrPagerDied: the pager, or its guard, was killed or has crashed.
	ErrPagerDied = pager.ErrDied
	// ErrPagerHung: the pager is there and does nothing.
	ErrPagerHung = pager.ErrHung
	// ErrPagerDeadline: the source did not answer in time.
	ErrPagerDeadline = pager.ErrDeadline
	// ErrPageSource: the source's pages or size make no sense.
	ErrPageSource = pager.ErrSource
	// ErrPagesRemoved: the application has removed pages from the memory, with MADV_REMOVE.
	ErrPagesRemoved = pager.ErrRemoved
	// ErrMemoryLocked: this process locks all memory that it maps, and so all of it was there
	// at once, as zeros.
	ErrMemoryLocked = errors.New("memory of this process is locked when it is mapped")
	// ErrMapOption: an option makes no sense.
	ErrMapOption = errors.New("bad option of mapped memory")
	// errMapClosed matches net.ErrClosed.
	errMapClosed = via.ErrClosed.Finer("the mapping is closed")
)

// Hints of ErrNoUserfaultfd and ErrUserfaultfdTooOld.
const (
	HintNoUserfaultfd     = userfault.HintNoKernel
	HintUserfaultfdTooOld = userfault.HintTooOld
)

// MapError says what was attempted with mapped memory, why it failed, and what mends it.
type MapError struct {
	Op  string
	Err error
	// Hint may be empty.
	Hint string
}

func (e *MapError) Error() string {
	if e.Hint == "" {
		return fmt.Sprintf("%s: %v", e.Op, e.Err)
	}
	return fmt.Sprintf("%s: %v (%s)", e.Op, e.Err, e.Hint)
}

// Unwrap returns the cause.
func (e *MapError) Unwrap() error { return e.Err }

// mapError makes one of err, which may be one already.
func mapError(op string, err error) error {
	var e *MapError
	if errors.As(err, &e) {
		return err
	}
	return &MapError{Op: op, Err: err}
}
