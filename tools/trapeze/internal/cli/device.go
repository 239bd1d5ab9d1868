package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"

	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/via"
)

// open opens the NIC at a device address. What happens to it asynchronously
// shows in the calls that suffer from it, so it is not logged as well.
func open(ctx context.Context, address string) (*via.NIC, error) {
	nic, err := via.Open(ctx, address, via.WithErrorHandler(func(via.AsyncError) {}), via.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil))))
	if err != nil {
		return nil, &deviceError{err}
	}
	return nic, nil
}

// openPair opens two emulated NICs that are wired to each other, in this
// process.
func openPair(ctx context.Context) (a, b *via.NIC, err error) {
	// Only two can share a wire, so its name is one that nobody else chooses.
	address := "emu:?wire=mem:trapeze-" + rand.Text()
	if a, err = open(ctx, address); err != nil {
		return nil, nil, err
	}
	if b, err = open(ctx, address); err != nil {
		return nil, nil, errors.Join(err, a.Close())
	}
	return a, b, nil
}

// closing closes a NIC and adds its error to *err if there is none yet.
func closing(nic *via.NIC, err *error) {
	if cerr := nic.Close(); *err == nil {
		*err = cerr
	}
}

// checkPeerAddress refuses devices that cannot reach another process.
func checkPeerAddress(device string) error {
	if device == "" {
		return usagef("no device given; add --device, as in --device 'emu:?wire=udp://127.0.0.1:9000'")
	}
	a, err := vfio.ParseAddress(device)
	if err != nil {
		return &deviceError{err}
	}
	if wire := a.Options.Get("wire"); a.Scheme == "emu" && (wire == "" || wire == "loop") {
		return &deviceError{hinted(fmt.Errorf("device %s: its wire ends at itself, nobody else is on it", device),
			"add wire=udp://HOST:PORT, see 'trapeze list'")}
	}
	return nil
}

// parseMAC reads six bytes in hexadecimal with colons.
func parseMAC(s string) (via.MAC, error) {
	hw, err := net.ParseMAC(s)
	if err != nil || len(hw) != len(via.MAC{}) {
		return via.MAC{}, usagef("%q is not a MAC address such as 02:00:00:00:00:01", s)
	}
	return via.MAC(hw), nil
}

// sendHint is the device address with which a program on the same machine can
// reach the NIC at address; empty if that is not known.
func sendHint(address string) string {
	a, err := vfio.ParseAddress(address)
	if err != nil || a.Scheme != "emu" {
		return ""
	}
	hostPort, ok := strings.CutPrefix(a.Options.Get("wire"), "udp://")
	if !ok {
		return ""
	}
	return peerAddress(hostPort)
}
