package channel

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/via"
)

// Priority of a message.
type Priority = datasheet.ChannelPriority

// High cells go between any two Low ones.
const (
	High = datasheet.PriorityHigh
	Low  = datasheet.PriorityLow
)

// Depth bounds the messages of one priority that a channel has under way.
const Depth = datasheet.ChannelDepth

// Channel is one end of a pair. Sending and receiving may be done by different goroutines, and
// several may send; one at a time receives.
type Channel struct {
	nic        *via.NIC
	d          *driver.Channel
	send, recv *Pages
	own        bool // the channel closes send
	spaced     bool
	address    via.Address // of the other end
	closed     atomic.Bool

	mu    sync.Mutex // guards what follows
	taken uint8      // number of PDUs that Poll has returned
	start int        // first word of the next PDU
}

// Words returns the number of words of 8 bytes in a double page: 1024, 2048 or 4096.
func (c *Channel) Words() int { return c.recv.Words() }

// SendPages returns the double page that messages are sent from.
func (c *Channel) SendPages() *Pages { return c.send }

// RecvPages returns the double page that messages land in.
func (c *Channel) RecvPages() *Pages { return c.recv }

// RemoteAddress returns the other end's address.
func (c *Channel) RemoteAddress() via.Address { return c.address }

// Send sends the words of SendPages from start up to, not including, stop. It is one store,
// allocates nothing, and does not wait. A NIC without a thread of its own sends the first cells
// only; Poll, Flush and Sent step it on. The words must not change until the message has left:
// see Sent. Without a peer the message is lost, which Status tells.
//
// Send fails with via.ErrQueueFull (bare) if Depth messages of that priority are under way, and
// with net.ErrClosed. It fails with via.ErrInvalidParameter for another priority, for offsets
// that are not 0 to Words()-1, and for equal ones.
func (c *Channel) Send(p Priority, start, stop int) error {
	return c.d.Send(p, offset(start), offset(stop))
}

// offset converts an offset for the driver. One out of range becomes one beyond every page.
func offset(word int) uint32 {
	if word < 0 || word > math.MaxUint16 {
		return math.MaxUint32
	}
	return uint32(word)
}

// Sent counts messages of one priority. While the counts differ, the NIC may read the words.
type Sent struct {
	// Taken counts the messages that Send has taken, modulo 2^32.
	Taken uint32
	// Left counts those of them that have left or were lost, modulo 2^32.
	Left uint32
}

// Sent returns the counts of a priority. It fails with net.ErrClosed, and with the NIC's error
// if that fails.
func (c *Channel) Sent(p Priority) (s Sent, err error) {
	s.Taken, s.Left, err = c.d.Sent(p)
	return s, err
}

// Flush waits until all messages have left or were lost. It fails with the error of ctx once that
// ends, and as Sent does. A peer that stops this end may delay it for long.
func (c *Channel) Flush(ctx context.Context) error {
	for pause := time.Duration(0); ; pause = min(pause+time.Microsecond, time.Millisecond) {
		under := false
		for p := range datasheet.ChannelPriorities {
			s, err := c.Sent(p)
			if err != nil {
				return err
			}
			under = under || s.Left != s.Taken
		}
		if !under {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return driver.NewError("flush channel", c.nic.Address(), err)
		}
		if !c.nic.Poll() {
			time.Sleep(pause)
		}
	}
}

// Allow lets messages land from the word start up to, not including, stop. Both are 0 to
// Words()-1; equal ones leave no room. Behind a message come its padding, at most 47 bytes, its
// trailer of AAL5, 8 bytes, and two words. Allow is one store. It cuts a message that is arriving
// in two. It fails with via.ErrInvalidParameter for other offsets, and with net.ErrClosed.
func (c *Channel) Allow(start, stop int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.d.Allow(offset(start), offset(stop)); err != nil {
		return err
	}
	c.start = start
	return nil
}

// Release gives the room of m, and of all messages before it, to later messages. It is one store,
// and fails as Allow does.
func (c *Channel) Release(m PDU) error {
	return c.d.AllowMore(offset((m.End + c.Words() - 1) % c.Words()))
}

// PDU is a received message.
type PDU struct {
	// Start is the first word of the message in RecvPages, and End that of the next one.
	Start, End int
	// Length in bytes, 0 to 65535, from the sender: whole words. It is 0 if Err is ErrAborted.
	Length int
	// CRC is the CRC of AAL5's trailer. It is zero if Err is ErrCut.
	CRC uint32
	// Stamp is the arrival of the last cell by the NIC's clock, in steps of 100 ns. It is zero if
	// Err is ErrCut.
	Stamp time.Duration
	// Err is ErrCRC, ErrLength, ErrAborted or ErrCut, or nil for a whole message.
	Err error
}

// Poll returns the next message. It fails with via.ErrNotDone (bare) if there is none, and with
// net.ErrClosed. Once the connection has ended and no message is left, it fails with
// via.ErrDisconnected, via.ErrPeerLost or via.ErrConnectionBroken. At most 255 messages may come
// between two calls.
func (c *Channel) Poll() (PDU, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w, err := c.d.Poll(c.taken)
	switch {
	case w.PDUs != c.taken && !errors.Is(err, via.ErrClosed):
		return c.take()
	case err != nil:
		return PDU{}, err
	}
	return PDU{}, via.ErrNotDone
}

// Wait waits for the next message and returns it. It fails as Poll does, with the error of ctx
// once that ends, and with via.ErrInvalidParameter for a nil ctx. It looks less and less often:
// where microseconds count, call Poll.
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
	case end&datasheet.ChannelEndBadCRC != 0:
		m.Err = ErrCRC
	case end&datasheet.ChannelEndBadLength != 0:
		m.Err = ErrLength
	case end&datasheet.ChannelEndAborted != 0:
		m.Err = ErrAborted
	case end&datasheet.ChannelEndCut != 0:
		m.Err = ErrCut
	}
	if end&datasheet.ChannelEndCut == 0 {
		m.CRC, m.Stamp = c.recv.stamp(m.End)
	}
	c.taken++
	c.start = m.End
	return m, nil
}

// Read copies the message, or as much of it as dst has room for, and returns the number of
// bytes: 0 once the channel is closed. Of a damaged message some of these bytes may be those of
// earlier ones. On a Spaced channel Read leaves out the two words behind each cell.
func (c *Channel) Read(m PDU, dst []byte) int {
	_, n := c.extent(m)
	dst = dst[:min(len(dst), n)]
	c.recv.copied.Add(uint64(len(dst)))
	if !c.spaced {
		c.recv.get(dst, m.Start)
		return len(dst)
	}
	for at, rest := m.Start, dst; len(rest) > 0; at = (at + spacedCell) % c.Words() {
		n := min(len(rest), datasheet.CellPayload)
		c.recv.get(rest[:n], at)
		rest = rest[n:]
	}
	return len(dst)
}

// View returns the message in RecvPages, without a copy. rest is the part beyond the end of the
// double page, else nil. The bytes hold until Release or Allow gives their room away; of a damaged
// message they may be those of earlier ones. View fails with via.ErrNotSupported (bare) on a
// Spaced channel, whose messages have gaps, and with via.ErrClosed (bare).
func (c *Channel) View(m PDU) (first, rest []byte, err error) {
	if c.spaced {
		return nil, nil, via.ErrNotSupported
	}
	b := c.recv.Bytes()
	if b == nil {
		return nil, nil, via.ErrClosed
	}
	at, n := c.extent(m)
	if over := at + n - len(b); over > 0 {
		return b[at:], b[:over:over], nil
	}
	return b[at:][:n:n], nil, nil
}

// extent returns the offset in bytes of a message in RecvPages, and its length there: 0 for a PDU
// that Poll cannot have returned, and once the pages are closed.
func (c *Channel) extent(m PDU) (at, n int) {
	if m.Start < 0 || m.Start >= c.Words() || m.Length < 0 {
		return 0, 0
	}
	return m.Start * Word, min(m.Length, max(len(c.recv.Bytes())-Word, 0))
}

// spacedCell is the size in words of a cell with its CRC and clock behind it.
const spacedCell = datasheet.CellPayload/Word + 2

// Drops counts the cells for a channel that the NIC has dropped.
type Drops struct {
	// Cells is the count modulo 512.
	Cells int
	// Many says that the count has reached 512 at least once.
	Many bool
}

// Drops returns the count of dropped cells. It fails with net.ErrClosed.
func (c *Channel) Drops() (Drops, error) {
	w, err := c.d.Received()
	return Drops{Cells: int(w.Drops &^ datasheet.ChannelDropsMany), Many: w.Drops&datasheet.ChannelDropsMany != 0}, err
}

// Status returns the NIC's result for the messages that Send took. It fails with net.ErrClosed.
func (c *Channel) Status() (datasheet.SendStatus, error) { return c.d.SendStatus() }

// Close ends the channel. Messages that have not left are lost: call Flush before. The other end
// gets those that have, and then via.ErrDisconnected.
func (c *Channel) Close() error {
	if c.closed.Swap(true) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	var errs []error
	if c.d != nil {
		errs = append(errs, c.d.Close(ctx))
	}
	if c.own && c.send != nil {
		errs = append(errs, c.send.Close(ctx))
	}
	if c.recv != nil {
		errs = append(errs, c.recv.Close(ctx))
	}
	return errors.Join(errs...)
}
