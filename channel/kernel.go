package channel

import (
	"context"
	"encoding/binary"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/via"
)

// Kernel is channel 0 of a NIC, which is the kernel's: a message of it goes out on any channel
// of that NIC, as if that channel's owner had sent it. Which one stands in the message, where
// for other channels it is the page of the doorbell that says it. So whoever holds this one's
// page can send on all channels, and others cannot.
type Kernel struct{ c *Channel }

// OpenKernel opens channel 0, with pages of pageSize bytes to send from, DefaultPageSize if
// that is zero. It needs the NIC's owner, and fails with via.ErrResource if somebody has it.
func OpenKernel(ctx context.Context, nic *via.NIC, pageSize int) (*Kernel, error) {
	if pageSize == 0 {
		pageSize = DefaultPageSize
	}
	c := &Channel{nic: nic, own: true}
	var err error
	if c.send, err = NewPages(ctx, nic, pageSize, via.MemoryAttributes{Ptag: nic.Ptag()}); err != nil {
		return nil, err
	}
	c.d, err = nic.Driver().CreateChannel(ctx, driver.ChannelAttributes{Ptag: nic.Ptag().Number(), Page: pageOf(pageSize),
		Send: c.send.segment(), Kernel: true})
	if err != nil {
		_ = c.Close() // err says why there is none
		return nil, err
	}
	return &Kernel{c}, nil
}

// Pages is the double page to send from.
func (k *Kernel) Pages() *Pages { return k.c.send }

// Put makes a message on a channel of the number: its words are start and on. It returns the word
// behind, for Send. Data must be shorter than both pages by a word.
func (k *Kernel) Put(start int, number uint32, data []byte) (stop int) {
	var word [Word]byte
	binary.LittleEndian.PutUint64(word[:], uint64(number))
	return k.c.send.Put(k.c.send.Put(start, word[:]), data)
}

// Send has the words from start on up to stop sent: the first one is the number of a channel,
// the others are the message. It is one store, and fails as Channel.Send does. A channel
// that is not there or not connected loses the message, which Status says.
func (k *Kernel) Send(p Priority, start, stop int) error {
	return k.c.Send(p, start, stop)
}

// Left is Channel.Left.
func (k *Kernel) Left(p Priority) (left, taken uint32, err error) { return k.c.Left(p) }

// Flush is Channel.Flush.
func (k *Kernel) Flush(ctx context.Context) error { return k.c.Flush(ctx) }

// Status says what has become of what Send took.
func (k *Kernel) Status() (descriptors.SendStatus, error) { return k.c.Status() }

// Close gives channel 0 back. What has not left is lost. Closing again fails with ErrClosed.
func (k *Kernel) Close() error { return k.c.Close() }

// Number is the channel's number at this NIC, for Kernel.Put.
func (c *Channel) Number() uint32 { return c.d.Number() }
