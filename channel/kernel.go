package channel

import (
	"context"
	"encoding/binary"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/via"
)

// Kernel is channel 0 of a NIC, the kernel's. Its messages go out on any channel of the NIC, as if
// that channel's owner had sent them: the first word of a message names the channel. Only the
// owner of channel 0 can do this.
type Kernel struct{ c *Channel }

// OpenKernel opens channel 0 with pages of pageSize bytes to send from; zero is DefaultPageSize.
// Only the NIC's owner may. It fails with via.ErrResource if channel 0 is open.
func OpenKernel(ctx context.Context, nic *via.NIC, pageSize int) (*Kernel, error) {
	if err := nic.Check("open kernel channel"); err != nil {
		return nil, err
	}
	if pageSize == 0 {
		pageSize = DefaultPageSize
	}
	c := &Channel{nic: nic, own: true}
	var err error
	if c.send, err = NewPages(ctx, nic, pageSize, via.MemoryAttributes{}); err != nil {
		return nil, err
	}
	c.d, err = nic.CreateChannel(ctx, driver.ChannelAttributes{Page: pageOf(pageSize),
		Send: c.send.segment(), Kernel: true})
	if err != nil {
		_ = c.Close() // err says why there is none
		return nil, err
	}
	return &Kernel{c}, nil
}

// Put writes a message for the channel of that number to the word start and on. It returns the
// word behind, for Send. Data must be shorter than both pages by a word.
func (k *Kernel) Put(start int, number uint32, data []byte) (stop int) {
	var word [Word]byte
	binary.LittleEndian.PutUint64(word[:], uint64(number))
	return k.c.send.Put(k.c.send.Put(start, word[:]), data)
}

// Send sends the words from start up to, not including, stop. The first is a channel's number, the
// others are the message, which is lost if the channel is not connected. Send is one store, and
// fails as Channel.Send does.
func (k *Kernel) Send(p Priority, start, stop int) error {
	return k.c.Send(p, start, stop)
}

// Sent returns counts as Channel.Sent does.
func (k *Kernel) Sent(p Priority) (Sent, error) { return k.c.Sent(p) }

// Flush waits as Channel.Flush does.
func (k *Kernel) Flush(ctx context.Context) error { return k.c.Flush(ctx) }

// Close gives channel 0 back. Messages that have not left are lost.
func (k *Kernel) Close() error { return k.c.Close() }

// Number returns the channel's number at this NIC, for Kernel.Put.
func (c *Channel) Number() uint32 { return c.d.Number() }
