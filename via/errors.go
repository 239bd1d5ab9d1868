package via

import (
	"fmt"
	"strings"

	"github.com/trapeze-nic/trapeze/vfio"
)

// Error is the error of this package: what was attempted on which device, the
// return code, the cause, and what can be done about it. errors.Is finds both
// the Code and whatever the cause matches, such as the driver's sentinels.
//
// The calls of the data path return four codes bare, because they are answers
// and not failures: ErrNotDone, ErrQueueEmpty, ErrQueueFull, and nil.
type Error struct {
	Op     string // such as "create VI"
	Device string // address of the NIC
	Code   Code
	Err    error  // cause below this package; may be nil
	Hint   string // what to do; may be empty
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Device != "" {
		fmt.Fprintf(&b, " on %s", e.Device)
	}
	if e.Err != nil {
		b.WriteString(": " + vfio.Inside(e.Op, e.Device, e.Err))
	} else {
		fmt.Fprintf(&b, ": %v", e.Code)
	}
	if e.Hint != "" {
		fmt.Fprintf(&b, " (%s)", e.Hint)
	}
	return b.String()
}

// Unwrap returns the code and the cause.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Code}
	}
	return []error{e.Code, e.Err}
}

// StatusError is a descriptor that completed in error. It matches
// ErrDescriptor. The descriptor is returned along with it.
type StatusError struct {
	Status Status
	// Ended says how the connection ended: ErrDisconnected, ErrPeerLost or
	// ErrConnectionBroken, which the error then matches too. It is zero if the
	// connection goes on, if there was none, and if this side has disconnected.
	Ended Code
	// Err is the provider's own error, if it has one.
	Err error
}

func (e *StatusError) Error() string {
	s := "descriptor completed in error: " + e.Status.String()
	if e.Ended != 0 {
		s += ": " + e.Ended.Error()
	}
	return s
}

// Is reports whether target is ErrDescriptor, or how the connection ended.
func (e *StatusError) Is(target error) bool {
	return target == ErrDescriptor || e.Ended != 0 && target == e.Ended
}

func (e *StatusError) Unwrap() error { return e.Err }

// fail makes an Error of what the provider returned.
func (n *NIC) fail(op string, err error) error {
	if err == nil {
		return nil
	}
	code, hint, cause := n.provider.Explain(err)
	return &Error{Op: op, Device: n.name, Code: code, Err: cause, Hint: hint}
}

// refuse makes an Error of something that this package found itself.
func (n *NIC) refuse(op string, code Code, hint, format string, args ...any) error {
	e := &Error{Op: op, Device: n.name, Code: code, Hint: hint}
	if format != "" {
		e.Err = fmt.Errorf(format, args...)
	}
	return e
}
