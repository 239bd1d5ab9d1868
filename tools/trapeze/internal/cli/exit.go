package cli

import (
	"errors"
	"fmt"

	"github.com/trapeze-nic/trapeze/firmware-loader/load"
	"github.com/trapeze-nic/trapeze/tools/internal/shell"
	"github.com/trapeze-nic/trapeze/tools/internal/transfer"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/telemetrycmd"
)

// hinted adds what to do about an error.
func hinted(err error, hint string) error { return fmt.Errorf("%w (%s)", err, hint) }

// exitCode returns the code of the errors of transfers and loads, and else 0.
func exitCode(err error) int {
	var remote *transfer.RemoteError
	switch {
	case errors.As(err, &remote) && remote.Reason == transfer.ReasonInterrupted:
		return shell.ExitPeerLost
	case errors.Is(err, transfer.ErrPeerLost), errors.Is(err, telemetrycmd.ErrOwnerLost):
		return shell.ExitPeerLost
	case errors.Is(err, load.ErrNotReady):
		return shell.ExitTimeout
	}
	return 0
}

// remark says what runs after a load that was stopped, and what an address is for that is no device's.
func remark(err error, stopped bool) string {
	if !stopped {
		return schemeHint(err)
	}
	var cut *load.Error
	if errors.As(err, &cut) {
		return "; " + string(cut.Outcome)
	}
	return ""
}
