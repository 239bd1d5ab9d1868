package channel

import (
	"context"
	"errors"
	"fmt"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/cells"
	"github.com/trapeze-nic/trapeze/via"
)

// Errors of a received message, see PDU.Err. All other errors are those of package via.
var (
	// ErrCRC: the message is damaged, or cells of it were lost.
	ErrCRC = cells.ErrCRC
	// ErrLength: the length in the trailer does not fit the number of cells.
	ErrLength = cells.ErrLength
	// ErrAborted: the sender has given the message up.
	ErrAborted = cells.ErrAborted
	// ErrCut: there was no room for the whole message.
	ErrCut = errors.New("there was no room for all of the message")
)

// refuse makes an error of this package's own.
func refuse(nic *via.NIC, op string, cause error, format string, args ...any) error {
	return driver.NewError(op, nic.Address(), fmt.Errorf("%w: %w", cause, fmt.Errorf(format, args...)))
}

// ended fails with the error of ctx once that has ended, and with via.ErrInvalidParameter for a nil
// ctx. Loops need it, as a wait for a message that is there already does not look at ctx.
func ended(ctx context.Context, nic *via.NIC, op string) error {
	if ctx == nil {
		return refuse(nic, op, via.ErrInvalidParameter, "there is no context")
	}
	if err := ctx.Err(); err != nil {
		return driver.NewError(op, nic.Address(), err)
	}
	return nil
}
