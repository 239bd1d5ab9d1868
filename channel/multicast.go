package channel

import (
	"fmt"

	"github.com/trapeze-nic/trapeze/via"
)

// Multicast sends the words from start on up to stop to the other ends of all channels, which
// share one double page (Options.Send): N words that were stored once cost M stores more, one
// for each channel, instead of N times M. It returns how many of the channels, from the first
// on, have taken the message, and why the next one has not, as Send does: ErrFull is returned
// bare, and the rest may be tried again. Channels with other pages are via.ErrInvalidParameter, and
// nothing is sent then.
func Multicast(p Priority, start, stop int, channels ...*Channel) (taken int, err error) {
	for i, c := range channels {
		if c.send != channels[0].send {
			return 0, refuse(c.nic, "multicast", via.ErrInvalidParameter, "channel %d sends from other pages than the first", i)
		}
	}
	for i, c := range channels {
		switch err := c.Send(p, start, stop); {
		case err == ErrFull:
			return i, err
		case err != nil:
			return i, fmt.Errorf("channel %d: %w", i, err)
		}
	}
	return len(channels), nil
}
