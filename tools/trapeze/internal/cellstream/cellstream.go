// Package cellstream sends bulk over a channel: messages with numbers, as fast as the other end makes
// room for them, and counts there what has come of them.
//
// A message begins with a word that says what it is, in three letters, and numbers it from zero
// on. The other end says in reports, with high priority, how far it is. So the sender never has
// more messages under way than the double page there has room for, and paces itself by what was
// lost (channel.Rate).
package cellstream

import (
	"context"
	"encoding/binary"
	"fmt"
	"runtime"
	"time"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/internal/cells"
	"github.com/trapeze-nic/trapeze/via"
)

// Name is where a Server listens.
const Name = "trapeze-channel-stream"

// PageSize is the size of the pages of channels for streams: the largest that there is, so that
// as much as possible may be under way.
const PageSize = 16 << 10

// Sizes of messages in bytes.
const (
	MinSize = channel.Word
	// MaxSize leaves room in the double page for padding, trailer, CRC and clock, and for the
	// end of the stream.
	MaxSize = 2*PageSize - 256
)

// What a message is stands in the upper 24 bits of its first word, its number below; the most
// significant byte is first. The letters are no header of a protocol that programs which show
// captures would take them for.
const (
	kindMessage = 'T'<<56 | 'z'<<48 | 'M'<<40
	kindEnd     = 'T'<<56 | 'z'<<48 | 'E'<<40
	kindReport  = 'T'<<56 | 'z'<<48 | 'R'<<40

	numberMask = 1<<40 - 1
)

// Counts describes a stream as its receiving end sees it.
type Counts struct {
	// Next is behind the highest number that has come, Over behind the highest that can have:
	// it also counts damaged messages, whose numbers are not known.
	Next uint64 `json:"-"`
	Over uint64 `json:"-"`
	// Messages that came whole, and what they held, in bytes.
	Messages uint64 `json:"messages" help:"that came whole"`
	Bytes    uint64 `json:"bytes"`
	// Damaged came and were not whole: lost without a trace are Next-Messages-Damaged or
	// fewer, as the rest of one that lost its end comes with the next.
	Damaged uint64 `json:"damaged" help:"messages"`
	// Drops are cells for the channel that its NIC had no room for.
	Drops uint64 `json:"drops" help:"cells that there was no room for"`
	// Stops counts how often the NIC has told its peers to stop, for any channel.
	Stops uint64 `json:"stops" help:"times that a sender was told to stop"`
}

// reportSize is the size of counts in a report, in bytes.
const reportSize = 8 * channel.Word

// put writes a report.
func (c *Counts) put(b *[reportSize]byte) {
	for i, v := range []uint64{kindReport | c.Next&numberMask, c.Over, c.Messages, c.Bytes, c.Damaged, c.Drops, c.Stops} {
		binary.BigEndian.PutUint64(b[i*channel.Word:], v)
	}
}

// parseCounts reads a report of a peer that was sent so many messages. No field goes back, and
// none says more than there was to say.
func parseCounts(b *[reportSize]byte, before *Counts, sent uint64, size int) (c Counts, err error) {
	fields := []*uint64{&c.Next, &c.Over, &c.Messages, &c.Bytes, &c.Damaged, &c.Drops, &c.Stops}
	for i, v := range fields {
		*v = binary.BigEndian.Uint64(b[i*channel.Word:])
	}
	kind := c.Next &^ numberMask
	c.Next &= numberMask
	c.Over = min(c.Over, sent) // an end that came damaged is said again, and counts twice
	switch {
	case kind != kindReport:
		return c, fmt.Errorf("%w: a message that is no report", via.ErrProtocol)
	case c.Next > c.Over || c.Messages > c.Next || c.Bytes > c.Messages*uint64(size):
		return c, fmt.Errorf("%w: a report of %d messages up to %d, %d bytes, when %d were sent", via.ErrProtocol, c.Messages, c.Next, c.Bytes, sent)
	case c.Next < before.Next || c.Over < before.Over || c.Messages < before.Messages || c.Bytes < before.Bytes || c.Damaged < before.Damaged || c.Drops < before.Drops || c.Stops < before.Stops:
		return c, fmt.Errorf("%w: a report of less than the one before", via.ErrProtocol)
	}
	return c, nil
}

// Cells returns the number of cells of a message of size bytes.
func Cells(size int) int { return cells.Count(size) }

// window returns the number of messages of a size that may be under way: the double page has room for them, and
// the receive word can tell them apart.
func window(size int) int {
	words := 2*PageSize/channel.Word - 2*cost(MinSize) // for the end, which may be said twice
	return max(1, min((words-1)/cost(size), maxWindow))
}

// cost returns the number of words of the double page that a message of a size takes.
func cost(size int) int { return Cells(size)*cells.PayloadSize/channel.Word + 2 }

// maxWindow is half of the PDUs that the receive word counts.
const maxWindow = 128

// spins counts the looks of a waiter before it sleeps between looks.
const spins = 1 << 11

// next returns the next message. It looks again and again for a while, and sleeps more and more
// until ctx ends or d is over: then it returns via.ErrNotDone.
func next(ctx context.Context, c *channel.Channel, d time.Duration) (channel.PDU, error) {
	began := time.Now()
	for i := range spins {
		if m, err := c.Poll(); err != via.ErrNotDone {
			return m, err
		}
		if i%16 == 15 {
			runtime.Gosched() // the other end may be in this process
		}
		if i%64 == 63 && (ctx.Err() != nil || time.Since(began) > d) {
			return channel.PDU{}, via.ErrNotDone
		}
	}
	waiting, cancel := context.WithTimeout(ctx, d-time.Since(began))
	defer cancel()
	m, err := c.Wait(waiting)
	if err != nil && waiting.Err() != nil {
		err = via.ErrNotDone
	}
	return m, err
}
