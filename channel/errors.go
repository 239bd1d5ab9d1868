package channel

import (
	"context"
	"errors"
	"fmt"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/pipeline/cells"
	"github.com/trapeze-nic/trapeze/via"
)

// Errors of channels. All others are those of package via, as are the *via.Error and the codes
// that these come in.
var (
	// ErrFull: as many messages are under way as may be. It is returned bare.
	ErrFull = via.ErrQueueFull
	// ErrEmpty: no message has come. It is returned bare.
	ErrEmpty = via.ErrNotDone
	// ErrClosed: the channel or listener was closed.
	ErrClosed = via.ErrClosed
)

// What may be wrong with a message that has come, see PDU.Err.
var (
	// ErrCRC: it is damaged, or cells of it were lost.
	ErrCRC = cells.ErrCRC
	// ErrLength: its length does not fit its cells.
	ErrLength = cells.ErrLength
	// ErrAborted: the sender has given it up.
	ErrAborted = cells.ErrAborted
	// ErrCut: there was no room for all of it.
	ErrCut = errors.New("there was no room for all of the message")
)

// refuse makes an error of something that this package found itself.
func refuse(nic *via.NIC, op string, cause error, format string, args ...any) error {
	return driver.NewError(op, nic.Name(), fmt.Errorf("%w: %w", cause, fmt.Errorf(format, args...)))
}

// ended fails with the error of ctx once that has ended, and with via.ErrInvalidParameter if there
// is none. Who sends or takes in a loop asks it each time: where what is waited for is always there
// already, nothing else looks at ctx.
func ended(ctx context.Context, nic *via.NIC, op string) error {
	if ctx == nil {
		return refuse(nic, op, via.ErrInvalidParameter, "there is no context")
	}
	if err := ctx.Err(); err != nil {
		return driver.NewError(op, nic.Name(), err)
	}
	return nil
}

// errWhole says of a message that is not what was expected that it is undamaged.
var errWhole = errors.New("it is whole")

func orNone(err error) error {
	if err == nil {
		return errWhole
	}
	return err
}
