package cli

import (
	"errors"
	"slices"
	"strings"

	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/firmware-loader/load"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/tools/internal/shell"
	"github.com/trapeze-nic/trapeze/tools/internal/transfer"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/telemetrycmd"
	"github.com/trapeze-nic/trapeze/vfio"
)

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
	if cut, ok := errors.AsType[*load.Error](err); ok {
		return "; " + string(cut.Outcome)
	}
	return ""
}

// schemeHint says what an address is for that is no device's, and what takes it; empty if
// that is not the error, or not known.
func schemeHint(err error) string {
	var e *vfio.Error
	if !errors.Is(err, vfio.ErrUnknownScheme) || !errors.As(err, &e) {
		return ""
	}
	scheme, rest, _ := strings.Cut(e.Device, ":")
	switch {
	case slices.Contains(ethernet.Schemes(), scheme):
		wire := e.Device
		if scheme == ethernet.SchemeAFXDP { // which eth: takes without it
			wire = rest
		}
		return "; " + scheme + ": is a port of plain frames, which 'trapeze frames' takes; as the wire of a NIC it is " +
			emulator.EthernetScheme + ":" + option.InAddress(wire) // they are the port's
	case slices.Contains([]string{"udp", "shm", "memif", "mem", "host"}, scheme):
		// The options of a wire are the device's.
		return "; it is a wire: as a device it is '" + emulator.Scheme + ":?wire=" + strings.Replace(e.Device, "?", "&", 1) + "'"
	}
	return ""
}
