package cellstream

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/tools/internal/transfer"
	"github.com/trapeze-nic/trapeze/via"
)

const (
	// reportSlots is the number of places for reports in the sending double page:
	// no more of them are under way at a time.
	reportSlots = 2 * channel.Depth
	// repeat is the time between two reports of the receiver while nothing comes: a report
	// may get lost, and the sender learns so that messages were.
	repeat = 10 * time.Millisecond
	// recount is the time between two reads of the NIC's counters, which take a while.
	recount = 100 * time.Millisecond
)

// receiver is the receiving end of a stream.
type receiver struct {
	nic *via.NIC
	c   *channel.Channel

	counts  Counts
	due     bool      // there is something to report
	reports int       // sent
	drops   int       // as read last, modulo datasheet.ChannelDropsMany
	stops   uint64    // of the NIC, before the stream
	counted time.Time // when counters were read
	ended   bool      // the last message has come
}

// Receive takes a stream until the channel ends or ctx does, which is no error, and returns what
// has come. It fails with transfer.ErrPeerLost if the sender is gone before its last message has
// come.
func Receive(ctx context.Context, nic *via.NIC, c *channel.Channel) (Counts, error) {
	r := &receiver{nic: nic, c: c}
	counters, err := nic.Counters()
	if err != nil {
		return r.counts, err
	}
	r.stops = counters[datasheet.CounterChannelStops.String()]
	err = r.run(ctx)
	if ctx.Err() != nil || r.ended && errors.Is(err, via.ErrDisconnected) {
		err = nil
	}
	return r.counts, transfer.Lost(err)
}

func (r *receiver) run(ctx context.Context) error {
	for unreported := 0; ctx.Err() == nil; {
		m, err := r.c.Poll()
		if err == via.ErrNotDone {
			if err := r.report(); err != nil {
				return err
			}
			unreported = 0
			m, err = next(ctx, r.c, repeat)
			r.due = r.due || err == via.ErrNotDone
		}
		switch {
		case err == via.ErrNotDone:
			continue
		case err != nil:
			return err
		}
		if err := r.take(m); err != nil {
			return err
		}
		if unreported++; unreported >= maxWindow/8 {
			if err := r.report(); err != nil {
				return err
			}
			unreported = 0
		}
	}
	return nil
}

// take counts a message. It is not copied: who wanted it would find it in RecvPages.
func (r *receiver) take(m channel.PDU) error {
	var b [channel.Word]byte
	whole := m.Err == nil && r.c.Read(m, b[:]) == len(b)
	if err := r.c.Release(m); err != nil {
		return err
	}
	r.due = true
	word := binary.BigEndian.Uint64(b[:])
	switch kind := word &^ numberMask; {
	case !whole || kind != kindMessage && kind != kindEnd:
		r.counts.Damaged++
		r.counts.Over++
		return nil
	case kind == kindEnd:
		r.ended = true
		r.counted = time.Time{} // what is said last shall be true
	default:
		r.counts.Messages++
		r.counts.Bytes += uint64(m.Length)
	}
	r.counts.Next = max(r.counts.Next, word&numberMask+1)
	r.counts.Over = max(r.counts.Over, r.counts.Next)
	return nil
}

// report says how far the stream is, if there is something to say. It may have to wait for
// room: then it is said the next time.
func (r *receiver) report() error {
	if !r.due {
		return nil
	}
	drops, err := r.c.Drops()
	if err != nil {
		return err
	}
	// The counter has 9 bits.
	r.counts.Drops += uint64(drops.Cells-r.drops) % datasheet.ChannelDropsMany
	r.drops = drops.Cells
	if now := time.Now(); now.Sub(r.counted) >= recount {
		r.counted = now
		counters, err := r.nic.Counters()
		if err != nil {
			return err
		}
		r.counts.Stops = counters[datasheet.CounterChannelStops.String()] - r.stops
	}
	var b [reportSize]byte
	r.counts.put(&b)
	start := r.reports % reportSlots * reportSize / channel.Word
	switch err := r.c.Send(channel.High, start, r.c.SendPages().Put(start, b[:])); err {
	case nil:
		r.reports++
		r.due = false
		return nil
	case via.ErrQueueFull:
		return nil
	default:
		return err
	}
}
