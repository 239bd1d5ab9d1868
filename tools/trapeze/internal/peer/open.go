package peer

import (
	"context"
	"errors"
	"time"

	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/via"
)

// Open opens the NIC at a device address. What happens to it asynchronously shows in the calls
// that suffer from it. It is logged as well if the user asks for that. Errors are those of CheckDevice
// and *command.DeviceError, the latter here and below.
func Open(ctx context.Context, address string, o via.Options) (*via.NIC, error) {
	if err := CheckDevice(address); err != nil {
		return nil, err
	}
	o.Logger = command.Logger(ctx, command.Quiet)
	return opened(via.Open(ctx, address, o))
}

// OpenDevice opens the NIC that a device is. The device is closed with it, and if it cannot be opened.
func OpenDevice(ctx context.Context, dev vfio.Device, o via.Options) (*via.NIC, error) {
	o.Logger = command.Logger(ctx, command.Quiet)
	return opened(via.OpenDevice(ctx, dev, o))
}

func opened(nic *via.NIC, err error) (*via.NIC, error) {
	if err != nil {
		return nil, &command.DeviceError{Err: err}
	}
	return nic, nil
}

// OpenPair opens two emulated NICs that are wired to each other, in this process. They have one clock,
// so that their logs fit together.
func OpenPair(ctx context.Context, o via.Options, more emulator.PairOptions) (a, b *via.NIC, err error) {
	start := time.Now()
	more.Clock = func() time.Duration { return time.Since(start) }
	x, y, err := emulator.Pair(more)
	if err != nil {
		return nil, nil, &command.DeviceError{Err: err}
	}
	if a, err = OpenDevice(ctx, x, o); err != nil {
		return nil, nil, errors.Join(err, y.Close())
	}
	if b, err = OpenDevice(ctx, y, o); err != nil {
		return nil, nil, errors.Join(err, a.Close())
	}
	return a, b, nil
}
