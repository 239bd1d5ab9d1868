package ring

import (
	"errors"
	"fmt"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/via"
)

// Errors of rings and calls. All others are those of package via, as are the *via.Error and
// the codes that these come in.
var (
	// ErrFull: there is no entry to send with, or as many calls are under way as there may
	// be. It is returned bare.
	ErrFull = via.ErrQueueFull
	// ErrEmpty: no message has come. It is returned bare.
	ErrEmpty = via.ErrNotDone
	// ErrNotOwned: the entry is not the program's: it was released, or never got.
	ErrNotOwned = via.ErrInvalidState.Finer("the entry is not the program's")
	// ErrAttached: the entry has a frame already.
	ErrAttached = via.ErrInvalidState.Finer("the entry has a frame attached")
	// ErrNoRoom: a message has no room for so many bytes more.
	ErrNoRoom = via.ErrInvalidParameter.Finer("the message has no room for that")
	// ErrDeadline: a call has had no reply in time. The error also matches the context's,
	// and context.DeadlineExceeded where that was the end.
	ErrDeadline = via.ErrTimeout.Finer("no reply in time")
	// ErrPeerGone: the connection has ended. The error also says how: via.ErrDisconnected,
	// via.ErrPeerLost or via.ErrConnectionBroken.
	ErrPeerGone = errors.New("the other end is gone")
	// ErrDiscarded: the reply's payload had no room in the call's frame.
	ErrDiscarded = via.ErrProtocol.Finer("the payload was discarded")
	// ErrProtocol: the other end does not keep to the protocol of calls.
	ErrProtocol = via.ErrProtocol
	// ErrClosed: the ring, listener or caller was closed.
	ErrClosed = via.ErrClosed
)

// refuse makes an error of something that this package found itself.
func refuse(nic *via.NIC, op string, cause error, hint, format string, args ...any) error {
	if format != "" {
		cause = fmt.Errorf("%w: %w", cause, fmt.Errorf(format, args...))
	}
	e := driver.NewError(op, nic.Name(), cause)
	e.Hint = hint
	return e
}

// gone reports whether err says that the connection has ended.
func gone(err error) bool {
	for _, end := range []error{via.ErrDisconnected, via.ErrPeerLost, via.ErrConnectionBroken} {
		if errors.Is(err, end) {
			return true
		}
	}
	var s *via.StatusError
	return errors.As(err, &s) && s.Status&via.StatusFlushed != 0
}
