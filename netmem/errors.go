package netmem

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/trapeze-nic/trapeze/netmem/internal/pager"
	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
	"github.com/trapeze-nic/trapeze/netmem/internal/userfault"
	"github.com/trapeze-nic/trapeze/via"
)

var (
	// ErrUnavailable: no server that holds the page can be reached. The error says what was
	// met last.
	ErrUnavailable = errors.New("no server that has the page answers")
	// ErrLost: the page was on a server that has restarted, and no other copy is left.
	ErrLost = errors.New("the page is lost: its server has restarted, and no copy is left")
	// ErrConflict: another client has written the page since it was read. See ConflictError.
	ErrConflict = errors.New("another client has written the page")
	// ErrOutside: the range is not within what is lent.
	ErrOutside = errors.New("outside of what is lent")
	// ErrFull: all the memory that the server lends is in use.
	ErrFull = errors.New("the server has no memory left")
	// ErrReadOnly: the server lends for reading only.
	ErrReadOnly = errors.New("lent for reading only")
	// ErrBusy: the server has too much under way, and had until the deadline.
	ErrBusy = errors.New("the server is busy")
	// ErrRestarted: the server is another one than before. Who sees it is connected anew.
	ErrRestarted = errors.New("the server has restarted")
	// ErrOtherPool: the servers do not belong together.
	ErrOtherPool = errors.New("the server belongs to another pool")
	// ErrEpoch: the servers know another configuration of their pool than this client did. It asks for
	// it and tries again.
	ErrEpoch = errors.New("the server knows another configuration of its pool")
	// ErrNoStore: the store of the configuration, without which a pool with copies must not go on, does not answer.
	ErrNoStore = errors.New("the store of the pool's configuration does not answer")
	// ErrProtocol: the other end does not keep to the protocol.
	ErrProtocol = protocol.ErrBroken
	// ErrVersionLimit: the page has been written 2^64-2 times, or a client has said so.
	ErrVersionLimit = errors.New("there is no larger version of the page")
	// ErrOption: an option makes no sense; the error names it.
	ErrOption = errors.New("bad option")
	// ErrClosed: the client or server is closed. It matches net.ErrClosed.
	ErrClosed = via.ErrClosed
)

// Error is the error of package via. Op says what was attempted, with the page's number if it is
// about one. Device is the server's address. Err is the cause, which is or wraps one of the errors
// above.
type Error = via.Error

// asError makes an *Error of err, which may be one already, or nil.
func asError(op string, err error) error {
	if _, ok := err.(*Error); ok || err == nil {
		return err
	}
	return &Error{Op: op, Err: err}
}

// late adds to an error that the deadline of its call has passed, if it has.
func late(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil || errors.Is(err, ErrConflict) {
		return err
	}
	return &Error{Op: "wait until the deadline", Code: via.ErrTimeout, Err: fmt.Errorf("%w: %w", os.ErrDeadlineExceeded, err)}
}

func onPage(op string, page uint64) string { return fmt.Sprintf("%s page %d", op, page) }

// ConflictError is a write that came too late. It matches ErrConflict. What was to be
// written is not in the cache any more: who reads the page gets the other client's.
type ConflictError struct {
	Page uint64
	// Base is the version that was read, and Found the one that the server has.
	Base, Found Version
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("%v: page %d is version %d, not %d any more", ErrConflict, e.Page, e.Found, e.Base)
}

// Is says that it is ErrConflict.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

func optionError(name string, value any, allowed string) error {
	return &Error{Op: "check options", Err: fmt.Errorf("%w: %s is %v, allowed: %s", ErrOption, name, value, allowed)}
}

// refusals are the errors of results; those that are not here break the protocol.
var refusals = map[protocol.Result]error{
	protocol.OutsideExport: ErrOutside, protocol.OtherIncarnation: ErrRestarted, protocol.Full: ErrFull, protocol.ReadOnly: ErrReadOnly,
	protocol.Busy: ErrBusy, protocol.OtherPool: ErrOtherPool, protocol.VersionConflict: ErrConflict,
	protocol.OtherEpoch: ErrEpoch, protocol.NotMember: ErrEpoch, protocol.VersionLimit: ErrVersionLimit,
}

// refusal is the error of a result that is not OK.
func refusal(r protocol.Result) error {
	if err, ok := refusals[r]; ok {
		return err
	}
	return fmt.Errorf("%w: it says %q", ErrProtocol, r)
}

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

// Version of a page: it grows with each write, and is never that of other bytes.
type Version uint64
