package netmem

import (
	"errors"

	"github.com/trapeze-nic/trapeze/netmem/internal/pager"
	"github.com/trapeze-nic/trapeze/netmem/internal/userfault"
	"github.com/trapeze-nic/trapeze/via"
)

// Errors of mapped memory, to be found with errors.Is inside an *Error.
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
	// errMapClosed matches net.ErrClosed.
	errMapClosed = via.ErrClosed.Finer("the mapping is closed")
)

// Hints of ErrNoUserfaultfd and ErrUserfaultfdTooOld.
const (
	HintNoUserfaultfd     = userfault.HintNoKernel
	HintUserfaultfdTooOld = userfault.HintTooOld
)
