package channel

import (
	"encoding/binary"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/via"
)

// Rate is flow control in software, from the count of cells that the receiver has dropped: the
// rate grows by a step with each report without new drops, and halves with each that has some
// (additive increase, multiplicative decrease: Chiu, Jain, 1989). It is the sender's; the
// receiver calls ReportDrops now and then.
type Rate struct {
	least, most, step float64 // bytes per second
	now               float64
	drops             uint16 // as reported last
	next              time.Duration
}

// NewRate makes a rate between least and most, in bytes per second, that begins with least. Its
// step is a sixteenth of most. A least below 1 byte per second counts as that, a most below least
// as least.
func NewRate(least, most float64) *Rate {
	if !(least >= 1) { // nor if it is no number
		least = 1
	}
	if !(most >= least) {
		most = least
	}
	return &Rate{least: least, most: most, step: most / 16, now: least}
}

// BytesPerSecond is the rate of the moment.
func (r *Rate) BytesPerSecond() float64 { return r.now }

// Delay returns how long to wait, at time now of any clock, before so many bytes may be sent,
// and counts them as sent then: 0 if they may be sent at once.
func (r *Rate) Delay(now time.Duration, bytes int) time.Duration {
	at := max(r.next, now)
	r.next = at + time.Duration(float64(bytes)/r.now*float64(time.Second))
	return at - now
}

// Report takes note of what the receiver says it has dropped, and returns how many cells are
// new since the last report: that are at most 512, as the count has 9 bits.
func (r *Rate) Report(drops uint16) (lost int) {
	lost = int((drops - r.drops) % descriptors.ChannelDropsMany)
	if lost == 0 && drops != r.drops {
		lost = descriptors.ChannelDropsMany // the top bit came with a full turn
	}
	if r.drops = drops; lost > 0 {
		r.now = max(r.now/2, r.least)
	} else {
		r.now = min(r.now+r.step, r.most)
	}
	return lost
}

// reportSize is the size of a report in bytes.
const reportSize = Word

// ReportDrops sends the sender at the other end the count of dropped cells, with high priority,
// from the last word of SendPages, which is not used for anything else then. It fails as Send does.
func (c *Channel) ReportDrops() error {
	w, err := c.d.Received()
	if err != nil {
		return err
	}
	var b [reportSize]byte
	binary.LittleEndian.PutUint64(b[:], uint64(w.Drops))
	return c.Send(High, c.Words()-1, c.send.Put(c.Words()-1, b[:]))
}

// ReadReport reads a message of ReportDrops, for Rate.Report: 0 to 1023. It fails with
// via.ErrProtocol if the message is none.
func (c *Channel) ReadReport(m PDU) (drops uint16, err error) {
	var b [reportSize]byte
	if m.Err != nil || m.Length != reportSize {
		return 0, refuse(c.nic, "read report", via.ErrProtocol, "a message of %d bytes: %w", m.Length, orNone(m.Err))
	}
	c.Read(m, b[:])
	v := binary.LittleEndian.Uint64(b[:])
	if v >= 2*descriptors.ChannelDropsMany {
		return 0, refuse(c.nic, "read report", via.ErrProtocol, "%d cells dropped: the count has 10 bits", v)
	}
	return uint16(v), nil
}
