package channel

import (
	"fmt"

	"github.com/trapeze-nic/trapeze/via"
)

// Multicast sends the words from start up to, not including, stop on all channels, which must
// share one double page (Options.Send). It costs one store for each channel. It returns the
// number of channels that have taken the message, from the first on, and the error of the next
// one: via.ErrQueueFull is returned bare, and the rest may be tried again. If channels have
// different pages it fails with via.ErrInvalidParameter and sends nothing.
func Multicast(p Priority, start, stop int, channels ...*Channel) (taken int, err error) {
	if err := samePages("multicast", channels); err != nil {
		return 0, err
	}
	for i, c := range channels {
		switch err := c.Send(p, start, stop); {
		case err == via.ErrQueueFull:
			return i, err
		case err != nil:
			return i, fmt.Errorf("channel %d: %w", i, err)
		}
	}
	return len(channels), nil
}

// samePages checks that channels share one double page to send from.
func samePages(op string, channels []*Channel) error {
	for i, c := range channels {
		if c.send != channels[0].send {
			return refuse(c.nic, op, via.ErrInvalidParameter, "channel %d sends from other pages than the first", i)
		}
	}
	return nil
}
