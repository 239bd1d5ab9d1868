package ring

import (
	"errors"
	"fmt"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/via"
)

// Errors of rings and calls, beside those of package via. All come inside a *via.Error.
var (
	// ErrNotOwned: the program does not own the entry.
	ErrNotOwned = via.ErrInvalidState.Finer("the entry is not the program's")
	// ErrNoRoom: the message or the frame is too small.
	ErrNoRoom = via.ErrInvalidParameter.Finer("the message has no room for that")
	// ErrDeadline: a call had no reply in time. The error also matches the context's.
	ErrDeadline = via.ErrTimeout.Finer("no reply in time")
	// ErrPeerGone: the connection has ended. The error also matches via.ErrDisconnected,
	// via.ErrPeerLost or via.ErrConnectionBroken.
	ErrPeerGone = errors.New("the other end is gone")
	// ErrDiscarded: the reply's payload had no room in the call's frame.
	ErrDiscarded = via.ErrProtocol.Finer("the payload was discarded")
)

// refuse makes an error of this package's own.
func refuse(nic *via.NIC, op string, cause error, hint, format string, args ...any) error {
	if format != "" {
		cause = fmt.Errorf("%w: %w", cause, fmt.Errorf(format, args...))
	}
	e := driver.NewError(op, nic.Address(), cause)
	e.Hint = hint
	return e
}

// gone reports whether err means that the connection has ended.
func gone(err error) bool {
	for _, end := range []error{via.ErrDisconnected, via.ErrPeerLost, via.ErrConnectionBroken} {
		if errors.Is(err, end) {
			return true
		}
	}
	var s *via.StatusError
	return errors.As(err, &s) && s.Status&via.StatusFlushed != 0
}
