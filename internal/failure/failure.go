// Package failure has the form of errors that most packages share: operation, device, cause, hint.
package failure

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ErrBadAddress: what was given is no address of a device.
var ErrBadAddress = errors.New("bad device address")

// Error says what was attempted on which device, why it failed, and what can be done about it.
type Error struct {
	Op     string // such as "map DMA"
	Device string // address; empty if there is none yet
	Err    error
	Hint   string // what to do; may be empty
}

func (e *Error) Error() string { return e.text(true, true) }

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Inside is the text of err inside an error of another layer about op on a device: an
// *Error does not name a second time the device, nor the operation, that this one
// has named.
func Inside(op, device string, err error) string {
	e, ok := err.(*Error)
	if !ok || e.Device != device && e.Device != strconv.Quote(device) { // one that is no address is quoted
		return fmt.Sprint(err)
	}
	return e.text(e.Op != op, false)
}

func (e *Error) text(op, device bool) string {
	var b strings.Builder
	if op {
		b.WriteString(e.Op)
		if device && e.Device != "" {
			fmt.Fprintf(&b, " %s", e.Device)
		}
		b.WriteString(": ")
	}
	b.WriteString(Inside(e.Op, e.Device, e.Err))
	if e.Hint != "" {
		fmt.Fprintf(&b, " (%s)", e.Hint)
	}
	return b.String()
}
