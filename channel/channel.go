package channel

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/via"
)

// Priority of a message.
type Priority = descriptors.ChannelPriority

// Cells of High messages go between any two of Low ones.
const (
	High = descriptors.PriorityHigh
	Low  = descriptors.PriorityLow
)

// Depth is how many messages of one priority a channel may have under way.
const Depth = descriptors.ChannelDepth

// Channel is one end of a pair. Sending and receiving may be done by different goroutines, and
// several may send; one at a time receives.
type Channel struct {
	nic        *via.NIC
	d          *driver.Channel
	send, recv *Pages
	own        bool // send is the channel's own
	spaced     bool
	remote     driver.Remote
	closed     atomic.Bool

	mu    sync.Mutex // guards what follows
	taken uint8      // PDUs that Poll has returned
	start int        // where the next one begins
}

// Words is how many words of 8 bytes a double page has: 1024, 2048 or 4096. Offsets are smaller.
func (c *Channel) Words() int { return c.recv.Words() }

// SendPages is the double page to send from, RecvPages the one that is received into.
func (c *Channel) SendPages() *Pages { return c.send }

// RecvPages: see SendPages.
func (c *Channel) RecvPages() *Pages { return c.recv }

// Remote is who is at the other end.
func (c *Channel) Remote() via.Remote { return c.remote }

// Send has the words of SendPages from start on up to stop, which is the word behind the last,
// sent at a priority. It is one store, allocates nothing, and waits for nobody: a NIC that the
// program steps sends more than the first cells while somebody polls, flushes or asks what has
// left. The words must not change until the message has left: see Left. What is sent once nobody
// is at the other end is lost, and Status says so.
//
// Send fails with ErrFull (bare) if Depth messages of that priority are under way, with
// via.ErrInvalidParameter for offsets that are not 0 to Words()-1, or the same, or another
// priority, and with ErrClosed.
func (c *Channel) Send(p Priority, start, stop int) error {
	return c.d.Send(p, offset(start), offset(stop))
}

// offset is an offset as the driver has it. One that has no place there is beyond every page.
func offset(word int) uint32 {
	if word < 0 || word > math.MaxUint16 {
		return math.MaxUint32
	}
	return uint32(word)
}

// Left returns how many messages of a priority have left, or come to nothing, of those that
// Send has taken: both modulo 2^32. While they differ, words may still be read. It fails with
// ErrClosed, and with what is wrong with the NIC.
func (c *Channel) Left(p Priority) (left, taken uint32, err error) {
	taken, left, err = c.d.Sent(p)
	return left, taken, err
}

// Flush waits until all messages have left, or come to nothing. It fails with the error of ctx once
// that ends, which must happen at some time if the peer may say stop for long, and as Left does.
func (c *Channel) Flush(ctx context.Context) error {
	for pause := time.Duration(0); ; pause = min(pause+time.Microsecond, time.Millisecond) {
		under := false
		for p := range descriptors.ChannelPriorities {
			left, taken, err := c.Left(p)
			if err != nil {
				return err
			}
			under = under || left != taken
		}
		if !under {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return driver.NewError("flush channel", c.nic.Name(), err)
		}
		if !c.nic.Poll() {
			time.Sleep(pause)
		}
	}
}

// Allow has what comes next stored from the word start on, up to stop, where nothing more is
// written: both are 0 to Words()-1, and if they are the same there is no room. Behind a message
// come its padding, at most 47 bytes, and its trailer of AAL5, 8 bytes, up to the end of a cell,
// and two words more. It is one store. While a message is arriving, it cuts that in two. It fails
// with via.ErrInvalidParameter for other offsets, and with ErrClosed.
func (c *Channel) Allow(start, stop int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.d.Allow(offset(start), offset(stop)); err != nil {
		return err
	}
	c.start = start
	return nil
}

// Release has what comes stored behind what has come already, up to where m begins the next
// time around: all that came before m's end may be written over. It is one store, and fails as Allow
// does.
func (c *Channel) Release(m PDU) error {
	return c.d.AllowMore(offset((m.End + c.Words() - 1) % c.Words()))
}

// PDU is a message that has come.
type PDU struct {
	// Start is the word of RecvPages where it begins, End the word where the next one does.
	Start, End int
	// Length in bytes, 0 to 65535, as the sender says: whole words; 0 if Err is ErrAborted.
	Length int
	// CRC is AAL5's, as its trailer has it, Stamp when its last cell came, by the NIC's clock,
	// whose unit is 100 ns. Both are zero if Err is ErrCut.
	CRC   uint32
	Stamp time.Duration
	// Err says what is wrong with it: ErrCRC, ErrLength, ErrAborted or ErrCut; nil if
	// nothing is.
	Err error
}

// Poll returns the message that has come first of those that it has not returned. It fails
// with ErrEmpty (bare) if there is none, with how the connection ended
// (via.ErrDisconnected, via.ErrPeerLost, via.ErrConnectionBroken) once none will come, and
// with ErrClosed. Of messages that come faster than Poll is called it can tell 255.
func (c *Channel) Poll() (PDU, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w, err := c.d.Poll(c.taken)
	switch {
	case w.PDUs != c.taken && !errors.Is(err, ErrClosed):
		return c.take()
	case err != nil:
		return PDU{}, err
	}
	return PDU{}, ErrEmpty
}

// Wait is Poll that waits for a message, or until ctx ends. The longer nothing comes the more
// seldom it looks, so who counts microseconds calls Poll. It fails as Poll does, and with the
// error of ctx; a nil ctx is via.ErrInvalidParameter.
func (c *Channel) Wait(ctx context.Context) (PDU, error) {
	c.mu.Lock()
	taken := c.taken
	c.mu.Unlock()
	if _, err := c.d.Wait(ctx, taken); err != nil {
		return PDU{}, err
	}
	return c.Poll()
}

// take describes the next message.
func (c *Channel) take() (PDU, error) {
	end, err := c.d.End(c.taken)
	if err != nil {
		return PDU{}, err
	}
	m := PDU{Start: c.start, End: int(end.Offset()) % c.Words(), Length: end.Length()}
	switch {
	case end&descriptors.ChannelEndBadCRC != 0:
		m.Err = ErrCRC
	case end&descriptors.ChannelEndBadLength != 0:
		m.Err = ErrLength
	case end&descriptors.ChannelEndAborted != 0:
		m.Err = ErrAborted
	case end&descriptors.ChannelEndCut != 0:
		m.Err = ErrCut
	}
	if end&descriptors.ChannelEndCut == 0 {
		m.CRC, m.Stamp = c.recv.stamp(m.End)
	}
	c.taken++
	c.start = m.End
	return m, nil
}

// Read copies the message, or as much of it as dst has room for, and returns how many bytes: 0
// once the channel is closed. In RecvPages it lies as it is, from Start on, see View; of a Spaced
// channel behind every 6 words are 2 that are not of the message. One that is not whole may have
// less than Length bytes there, and the rest of dst is what was there before.
func (c *Channel) Read(m PDU, dst []byte) int {
	_, n := c.extent(m)
	dst = dst[:min(len(dst), n)]
	c.recv.copied.Add(uint64(len(dst)))
	if !c.spaced {
		c.recv.get(dst, m.Start)
		return len(dst)
	}
	for at, rest := m.Start, dst; len(rest) > 0; at = (at + spacedCell) % c.Words() {
		n := min(len(rest), descriptors.CellPayload)
		c.recv.get(rest[:n], at)
		rest = rest[n:]
	}
	return len(dst)
}

// View returns the message where it lies in RecvPages, without a copy: rest is what runs over the
// end of the double page, else nil. It is there until a later message may be stored over it, see
// Release and Allow. As with Read, one that is not whole may have less than that there. View
// fails with via.ErrNotSupported (bare) on a Spaced channel, whose messages have gaps, and with
// ErrClosed (bare).
func (c *Channel) View(m PDU) (first, rest []byte, err error) {
	if c.spaced {
		return nil, nil, via.ErrNotSupported
	}
	b := c.recv.Bytes()
	if b == nil {
		return nil, nil, ErrClosed
	}
	at, n := c.extent(m)
	if over := at + n - len(b); over > 0 {
		return b[at:], b[:over:over], nil
	}
	return b[at:][:n:n], nil, nil
}

// extent returns at which byte of RecvPages a message begins and how many of its bytes there may
// be: none of what Poll cannot have returned, nor once the pages are freed.
func (c *Channel) extent(m PDU) (at, n int) {
	if m.Start < 0 || m.Start >= c.Words() || m.Length < 0 {
		return 0, 0
	}
	return m.Start * Word, min(m.Length, max(len(c.recv.Bytes())-Word, 0))
}

// spacedCell is what a cell takes in words if its CRC and clock are stored behind it.
const spacedCell = descriptors.CellPayload/Word + 2

// Drops returns how many cells for this channel were dropped. The NIC counts modulo 512 and
// says from then on that there were many: n is 0 to 511. It fails with ErrClosed.
func (c *Channel) Drops() (n int, many bool, err error) {
	w, err := c.d.Received()
	return int(w.Drops &^ descriptors.ChannelDropsMany), w.Drops&descriptors.ChannelDropsMany != 0, err
}

// Status says what has become of what Send took. It fails with ErrClosed.
func (c *Channel) Status() (descriptors.SendStatus, error) { return c.d.SendStatus() }

// Close ends the channel: what has not left is lost, and the other end gets
// via.ErrDisconnected. Closing again fails with ErrClosed.
func (c *Channel) Close() error {
	if c.closed.Swap(true) {
		return driver.NewError("close channel", c.nic.Name(), ErrClosed)
	}
	ctx, cancel := context.WithTimeout(context.Background(), parting)
	defer cancel()
	var errs []error
	if c.d != nil {
		errs = append(errs, c.d.Close(ctx))
	}
	if c.own && c.send != nil {
		errs = append(errs, c.send.Free(ctx))
	}
	if c.recv != nil {
		errs = append(errs, c.recv.Free(ctx))
	}
	return errors.Join(errs...)
}
