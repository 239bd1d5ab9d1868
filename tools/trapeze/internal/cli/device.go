package cli

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/via"
)

// open opens the NIC at a device address. What happens to it asynchronously
// shows in the calls that suffer from it. It is logged as well if the user asks for that.
func open(ctx context.Context, address string, opts via.Options) (*via.NIC, error) {
	nic, err := via.Open(ctx, address, logged(ctx, opts))
	if err != nil {
		return nil, &command.DeviceError{Err: err}
	}
	return nic, nil
}

func logged(ctx context.Context, o via.Options) via.Options {
	o.Logger = command.Logger(ctx, command.Quiet)
	return o
}

// openPair opens two emulated NICs that are wired to each other, in this
// process. They have one clock, so that their logs fit together.
func openPair(ctx context.Context, opts via.Options) (a, b *via.NIC, err error) {
	return openPairWith(ctx, opts, emulator.PairOptions{}, nil)
}

// openPairWith is openPair with more choices of the two. It has show see the frames of a, unless it
// is nil.
func openPairWith(ctx context.Context, opts via.Options, more emulator.PairOptions, show func(sent bool, frame []byte)) (a, b *via.NIC, err error) {
	start := time.Now()
	more.Clock = func() time.Duration { return time.Since(start) }
	x, y, err := emulator.Pair(more)
	if err != nil {
		return nil, nil, &command.DeviceError{Err: err}
	}
	x.Watch(show)
	if a, err = openDevice(ctx, x, opts); err != nil {
		return nil, nil, errors.Join(err, y.Close())
	}
	if b, err = openDevice(ctx, y, opts); err != nil {
		return nil, nil, errors.Join(err, a.Close())
	}
	return a, b, nil
}

// openDevice opens the NIC that a device is. The device is closed with it, and
// if it cannot be opened.
func openDevice(ctx context.Context, dev vfio.Device, opts via.Options) (*via.NIC, error) {
	nic, err := via.OpenDevice(ctx, dev, logged(ctx, opts))
	if err != nil {
		return nil, &command.DeviceError{Err: err}
	}
	return nic, nil
}

// closing closes a NIC and adds its error to *err if there is none yet.
func closing(nic *via.NIC, err *error) {
	if cerr := nic.Close(); *err == nil {
		*err = cerr
	}
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
	to := peerAddress(hostPort)
	if key := a.Options.Get("key"); to != "" && key != "" {
		to += "&key=" + key
	}
	return to
}
