package channel

import (
	"context"
	"encoding/binary"

	"github.com/trapeze-nic/trapeze/via"
)

// Bundle is a connection of several channels side by side, for messages longer than a double page (MINI, figure 7). Each
// channel carries one part of a message. A part begins with a word of its own: the number of the message, and its length.
//
// A Bundle is as much best effort as its channels: a message that comes while two wait finds no room. Rate paces the sender.
// One goroutine at a time may send, and one receive.
type Bundle struct {
	channels []*Channel
	number   uint32 // of the next message to send
	parts    []part // of each channel: the part that has come and was not taken, if its Length is not zero
}

// part is a part of a message that has come.
type part struct {
	PDU
	number uint32 // of the message
	length int    // of the message, in bytes
}

// NewBundle makes a Bundle of channels, which stay the caller's. Both ends have them in the same order, and use them for nothing
// else. It fails with via.ErrInvalidParameter if there are none, if one is Spaced or sends from pages of Options.Send, or if
// their pages differ in size.
func NewBundle(channels ...*Channel) (*Bundle, error) {
	if len(channels) == 0 {
		return nil, &via.Error{Op: "new bundle", Code: via.ErrInvalidParameter, Hint: "give at least one channel"}
	}
	for i, c := range channels {
		if c.spaced || !c.own || c.Words() != channels[0].Words() {
			return nil, refuse(c.nic, "new bundle", via.ErrInvalidParameter, "channel %d is Spaced, shares its sending pages, or has pages of another size", i)
		}
	}
	return &Bundle{channels: channels, parts: make([]part, len(channels))}, nil
}

// room is the number of bytes of a message that a part carries: half of what a double page takes, so that the next message
// finds room beside a part that waits in vain for the others, less what stands behind each PDU and the part's own word.
func (b *Bundle) room() int {
	return ((b.channels[0].Words()-1)*Word/2-slack)/Word*Word - Word
}

// MaxMessage is the size in bytes of the largest message.
func (b *Bundle) MaxMessage() int { return len(b.channels) * b.room() }

// count is the number of parts of a message.
func (b *Bundle) count(length int) int { return max(1, (length+b.room()-1)/b.room()) }

// Send copies a message of 0 to MaxMessage bytes into the sending pages and sends it, once the message before has left
// them. It fails with via.ErrInvalidParameter for a longer one, and as Flush and Channel.Send do.
func (b *Bundle) Send(ctx context.Context, p Priority, message []byte) error {
	const op = "send on bundle"
	nic := b.channels[0].nic
	if err := ended(ctx, nic, op); err != nil {
		return err
	}
	if len(message) > b.MaxMessage() {
		return refuse(nic, op, via.ErrInvalidParameter, "%d bytes, at most %d", len(message), b.MaxMessage())
	}
	word := binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, b.number), uint32(len(message)))
	b.number++
	for _, c := range b.channels[:b.count(len(message))] {
		if err := c.Flush(ctx); err != nil {
			return err
		}
		n := min(len(message), b.room())
		if err := c.Send(p, 0, c.send.Put(c.send.Put(0, word), message[:n])); err != nil {
			return err
		}
		message = message[n:]
	}
	return nil
}

// Receive waits for the next whole message and copies it to into, or as much of it as into has room for. It returns the
// message's length. It passes over messages that have lost a part, which the next one tells. It fails as Channel.Wait does.
func (b *Bundle) Receive(ctx context.Context, into []byte) (length int, err error) {
	for {
		first, err := b.next(ctx, 0)
		if err != nil {
			return 0, err
		}
		parts, whole := b.count(first.length), true
		for i := 1; i < parts && whole; i++ {
			p, err := b.next(ctx, i)
			for err == nil && int32(p.number-first.number) < 0 { // of a message that has lost another part
				if err = b.release(i); err == nil {
					p, err = b.next(ctx, i)
				}
			}
			if err != nil {
				return 0, err
			}
			whole = p.number == first.number && p.length == first.length
		}
		if !whole {
			if err := b.release(0); err != nil {
				return 0, err
			}
			continue
		}
		length, rest := first.length, into[:min(first.length, len(into))]
		for i := range parts {
			m := b.parts[i].PDU
			m.Start, m.Length = (m.Start+1)%b.channels[i].Words(), m.Length-Word
			rest = rest[b.channels[i].Read(m, rest):]
			if err := b.release(i); err != nil {
				return 0, err
			}
		}
		return length, nil
	}
}

// next waits for the next part of channel i that is undamaged, and leaves it where it is.
func (b *Bundle) next(ctx context.Context, i int) (*part, error) {
	c, p := b.channels[i], &b.parts[i]
	for p.Length == 0 {
		if err := ended(ctx, c.nic, "receive on bundle"); err != nil {
			return nil, err
		}
		m, err := c.Wait(ctx)
		if err != nil {
			return nil, err
		}
		var word [Word]byte
		c.Read(m, word[:])
		number, length := binary.LittleEndian.Uint32(word[:]), int64(binary.LittleEndian.Uint32(word[4:]))
		own := min(max(int(length)-i*b.room(), 0), b.room()) // the part's own bytes
		if m.Err == nil && length <= int64(b.MaxMessage()) && m.Length == Word+(own+Word-1)/Word*Word {
			*p = part{m, number, int(length)}
		} else if err := c.Release(m); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// release gives up the part of channel i.
func (b *Bundle) release(i int) error {
	m := b.parts[i].PDU
	b.parts[i] = part{}
	return b.channels[i].Release(m)
}
