package cli

import (
	"errors"
	"slices"
	"strings"

	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/vfio"
)

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
			emulator.EthernetScheme + ":" + wire
	case slices.Contains([]string{"udp", "shm", "memif", "mem"}, scheme):
		return "; it is a wire: as a device it is '" + emulator.Scheme + ":?wire=" + e.Device + "'"
	}
	return ""
}
