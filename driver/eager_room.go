package driver

import (
	"context"
	"errors"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// eagerly calls make, which asks the device for something that takes memory for blocks, until
// there is room, or as room says. Without, make has to make something ordinary. field is the one that
// the device refuses for want of room.
func eagerly[T any](ctx context.Context, n *NIC, room NoRoom, field uint16, make func(eager bool) (T, error)) (none T, _ error) {
	supported := n.hasSRAM(datasheet.FeatureEager)
	for pause := time.Millisecond; supported; pause = min(2*pause, 20*time.Millisecond) {
		made, err := make(true)
		switch {
		case !lacksRoom(err, field) || room == NoRoomFails:
			return made, err
		case room == NoRoomWaits:
			// A deregistration makes room, here or in another program's part of the device.
			if err := n.nap(ctx, pause); err != nil {
				return none, err
			}
		default:
			supported = false
		}
	}
	if room != NoRoomOrdinary {
		return none, errNoEager
	}
	n.regions.keep(EagerStats{FellBack: 1})
	return make(false)
}

// lacksRoom reports whether the device has refused memory for blocks.
func lacksRoom(err error, field uint16) bool {
	refused, ok := errors.AsType[*CommandError](err)
	return ok && refused.Result == datasheet.ResultResource && refused.Field == field
}

// nap waits. It fails if ctx ends before, or the NIC is closed.
func (n *NIC) nap(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-n.done:
		return descriptors.ErrClosed
	}
}
