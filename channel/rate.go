package channel

import (
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// Rate is flow control in software, for the sender, from the receiver's count of dropped cells
// (Channel.Drops). The rate grows by a step with each report without new drops, and halves with
// each report that has some (additive increase, multiplicative decrease: Chiu, Jain, 1989). Stamps of the receiver's
// (PDU.Stamp) say how fast the path is, before anything is dropped.
type Rate struct {
	least, most, step float64 // bytes per second
	now               float64
	drops             Drops // of the last report
	next              time.Duration
}

// NewRate makes a rate between least and most, in bytes per second. It begins with least, and its
// step is a sixteenth of most. A least below 1 byte per second counts as 1, and a most below least
// as least.
func NewRate(least, most float64) *Rate {
	if !(least >= 1) { // also true for NaN
		least = 1
	}
	if !(most >= least) {
		most = least
	}
	return &Rate{least: least, most: most, step: most / 16, now: least}
}

// BytesPerSecond returns the present rate.
func (r *Rate) BytesPerSecond() float64 { return r.now }

// Delay returns the time to wait before so many bytes may be sent, and counts them as sent then.
// now is the time of any clock.
func (r *Rate) Delay(now time.Duration, bytes int) time.Duration {
	at := max(r.next, now)
	r.next = at + time.Duration(float64(bytes)/r.now*float64(time.Second))
	return at - now
}

// Report takes a count of the receiver's, and returns the number of cells since the last report: 0
// to 512, as the count has 9 bits.
func (r *Rate) Report(drops Drops) (lost int) {
	lost = (drops.Cells - r.drops.Cells) & (datasheet.ChannelDropsMany - 1)
	if lost == 0 && drops != r.drops {
		lost = datasheet.ChannelDropsMany // Many came with a full turn
	}
	if r.drops = drops; lost > 0 {
		r.now = max(r.now/2, r.least)
	} else {
		r.now = min(r.now+r.step, r.most)
	}
	return lost
}

// Pair takes the stamps of two messages of the receiver's that were sent back to back, and the bytes of the second: the path has
// taken that time for them (packet pair: Keshav, 1991). The rate becomes that of the path, but not below the least nor above the
// most. Stamps that are not in order change nothing.
func (r *Rate) Pair(first, second time.Duration, bytes int) {
	if second > first {
		r.now = min(max(float64(bytes)/(second-first).Seconds(), r.least), r.most)
	}
}
