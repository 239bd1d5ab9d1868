package channel

import (
	"context"
	"errors"
	"time"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/via"
)

// DefaultPageSize is the default size of a page in bytes.
const DefaultPageSize = 1 << datasheet.MinChannelPageLog2

// closeTimeout bounds the end of a channel.
const closeTimeout = 2 * time.Second

// Options are choices of Dial and Listen. The zero value has the defaults.
type Options struct {
	// PageSize is 4096, 8192 or 16384 bytes, the same at both ends. Zero is that of Send; without
	// Send it is DefaultPageSize for Dial, and the client's for Listen.
	PageSize int
	// Send is the double page to send from, which the caller closes. With nil the channel has
	// its own.
	Send *Pages
	// Spaced stores the CRC so far and the clock behind each received cell.
	Spaced bool
	// Ptag is the protection tag of the channel and its pages; nil is the NIC's.
	Ptag *via.Ptag
}

// complete fills in the defaults.
func (c Options) complete() Options {
	if c.Send != nil && c.PageSize == 0 {
		c.PageSize = c.Send.PageSize()
	}
	return c
}

// Dial opens a pair of channels with the program that listens at address, such as "alpha:cells"
// or "02:00:00:00:00:01/cells": see via.NIC.Resolve. While no program listens, Dial tries again
// until ctx ends, or for via.DialTimeout if ctx has no deadline. Then it fails with
// via.ErrTimeout, and with via.ErrNoMatch if the NIC answered.
func Dial(ctx context.Context, nic *via.NIC, address string, options Options) (*Channel, error) {
	to, err := nic.Resolve(ctx, address)
	if err != nil {
		return nil, err
	}
	o := options.complete()
	if o.PageSize == 0 {
		o.PageSize = DefaultPageSize
	}
	c, err := newChannel(ctx, nic, o)
	if err != nil {
		return nil, err
	}
	remote, err := c.d.Dial(ctx, to, "")
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	to.MAC = remote.MAC
	c.address = to
	return c, nil
}

// newChannel makes a channel with all its room open, not connected yet.
func newChannel(ctx context.Context, nic *via.NIC, o Options) (c *Channel, err error) {
	if o.Send != nil && o.Send.PageSize() != o.PageSize {
		return nil, refuse(nic, "open channel", via.ErrInvalidParameter, "PageSize is %d, and the pages of Send have %d bytes", o.PageSize, o.Send.PageSize())
	}
	c = &Channel{nic: nic, send: o.Send, spaced: o.Spaced}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
			c = nil
		}
	}()
	memory := via.MemoryAttributes{Ptag: o.Ptag}
	if c.recv, err = NewPages(ctx, nic, o.PageSize, memory); err != nil {
		return c, err
	}
	if c.send == nil {
		c.own = true
		if c.send, err = NewPages(ctx, nic, o.PageSize, memory); err != nil {
			return c, err
		}
	}
	c.d, err = nic.CreateChannel(ctx, driver.ChannelAttributes{Ptag: o.Ptag, Page: pageOf(o.PageSize),
		Send: c.send.segment(), Recv: c.recv.segment(), Spaced: o.Spaced})
	if err != nil {
		return c, err
	}
	return c, c.Allow(0, c.Words()-1)
}

// Listener takes connections of channels at one name of a NIC. A client that does not answer
// delays no other. Its methods may be called from several goroutines.
type Listener = driver.Listener[*Channel]

// Listen takes connections at name, 0 to via.MaxDiscriminator bytes, until the listener is
// closed. It fails with via.ErrAddressInUse if another listener of the NIC has the name. The
// options are those of each channel.
func Listen(nic *via.NIC, name string, options Options) (*Listener, error) {
	if err := nic.Check("listen"); err != nil {
		return nil, err
	}
	o := options.complete()
	if o.PageSize != 0 && !isPage(o.PageSize) {
		return nil, refuse(nic, "listen", via.ErrInvalidParameter, "PageSize is %d: pages have 4096, 8192 or 16384 bytes", o.PageSize)
	}
	return driver.Listen(nic.NIC, name, driver.ListenConfig[*Channel]{
		Connect: func(ctx context.Context, request *driver.Connection) (*Channel, error) {
			return accept(ctx, nic, o, request)
		}, Close: (*Channel).Close})
}

// accept opens the channel for a client's request.
func accept(ctx context.Context, nic *via.NIC, o Options, request *driver.Connection) (*Channel, error) {
	theirs := int(request.Remote.MaxTransfer) / 2
	if o.PageSize == 0 {
		o.PageSize = theirs
	}
	if o.PageSize != theirs {
		return nil, via.ErrInvalidMTU
	}
	c, err := newChannel(ctx, nic, o)
	if err != nil {
		return nil, err
	}
	c.address = via.Address{MAC: request.Remote.MAC, Discriminator: request.Discriminator}
	if _, err := request.Accept(ctx, c.d); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}
