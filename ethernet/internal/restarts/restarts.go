// Package restarts bounds how often a queue whose device breaks the rules is given new
// rings.
package restarts

import (
	"fmt"
	"time"

	"github.com/trapeze-nic/trapeze/ethernet"
)

// most is how often in a row a queue is restarted.
const most = 4

// Count counts the restarts of a queue. The zero value has counted none.
type Count struct {
	last time.Time
	row  int
}

// Again counts a restart because of why. It fails with ethernet.ErrProtocol, and why, if
// there have been four in a row before, each within a time of the one before it.
func (c *Count) Again(why error, now time.Time, within time.Duration) error {
	if now.Sub(c.last) > within {
		c.row = 0
	}
	c.last = now
	if c.row++; c.row > most {
		return fmt.Errorf("%w: %w, for the %d. time", ethernet.ErrProtocol, why, c.row)
	}
	return nil
}
