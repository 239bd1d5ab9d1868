package ring

import (
	"math"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/via"
)

const (
	// MessageSize is the size in bytes of a message. All of it always travels.
	MessageSize = descriptors.RingMessage
	// DefaultEntries is how many entries each of the two rings has if nothing is said.
	DefaultEntries = 64
	// DefaultMaxPayload is the largest payload in bytes if nothing is said: the page of the
	// papers' Alphas.
	DefaultMaxPayload = 8 << 10
	// NoPayload as MaxPayload: messages carry none. As FrameSize: no memory is attached to
	// the receive entries.
	NoPayload = -1
)

// mostAsked is the largest payload in bytes for which a listener that has not said how
// large they are makes room because a client asks for it.
const mostAsked = 64 << 10

// Options are choices of Dial and Listen. The zero value is good.
type Options struct {
	// Entries is how many entries each of the two rings has, 1 to the NIC's MaxDescriptors;
	// it is rounded up to a power of two of at least 2. Zero is DefaultEntries.
	Entries int
	// MaxPayload is the largest payload in bytes, the same at both ends; zero is
	// DefaultMaxPayload for Dial, and what the client has, up to 64 KiB, for Listen.
	MaxPayload int
	// FrameSize is the size in bytes of the frame, of memory that is the ring's own, that is
	// attached to each receive entry at the start; zero is MaxPayload.
	FrameSize int
	// Reliability is best effort, Unreliable, if zero.
	Reliability via.Reliability
	// Ptag is the protection tag of the ring and of what is attached; nil is the NIC's.
	Ptag *via.Ptag
	// Access says how messages are read and written.
	Access Access
}

// complete fills in the defaults, and checks what the driver does not.
func (o *Options) complete(nic *via.NIC) (Options, error) {
	const op = "create ring"
	var c Options
	if o != nil {
		c = *o
	}
	if c.Entries == 0 {
		c.Entries = min(DefaultEntries, nic.Query().MaxDescriptors)
	}
	if c.MaxPayload == 0 {
		c.MaxPayload = min(DefaultMaxPayload, int(nic.Driver().MaxPayload()))
	}
	if c.MaxPayload == NoPayload {
		c.MaxPayload, c.FrameSize = 0, NoPayload
	}
	if c.FrameSize == 0 {
		c.FrameSize = c.MaxPayload
	}
	if c.Reliability == 0 {
		c.Reliability = via.Unreliable
	}
	if c.Ptag == nil {
		c.Ptag = nic.Ptag()
	}
	switch {
	case c.Access > Shadow:
		return c, refuse(nic, op, via.ErrInvalidParameter, "it is Measured, SRAM or Shadow", "Access is %d", c.Access)
	case c.MaxPayload < 0 || c.MaxPayload > int(nic.Driver().MaxPayload()):
		return c, refuse(nic, op, via.ErrInvalidMTU, "", "MaxPayload is %d, this NIC takes up to %d", c.MaxPayload, nic.Driver().MaxPayload())
	case c.FrameSize < NoPayload || c.FrameSize > math.MaxUint32:
		return c, refuse(nic, op, via.ErrInvalidParameter, "", "FrameSize is %d", c.FrameSize)
	}
	return c, nil
}

func (o *Options) driver() driver.RingAttributes {
	return driver.RingAttributes{Reliability: o.Reliability, Ptag: o.Ptag.Number(), MaxPayload: uint32(o.MaxPayload),
		SendDepth: o.Entries, RecvDepth: o.Entries}
}
