package ring

import (
	"math"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/via"
)

const (
	// MessageSize is the size in bytes of a message. All of it always travels.
	MessageSize = datasheet.RingMessage
	// NoPayload as MaxPayload: messages carry no payload. As FrameSize: receive entries have
	// no frame at first.
	NoPayload = -1

	defaultEntries = 64
	// defaultMaxPayload is a page of the papers' Alphas, in bytes.
	defaultMaxPayload = 8 << 10
	// mostAsked bounds the payload in bytes that a client may choose for a listener.
	mostAsked = 64 << 10
)

// Options are choices of Dial and Listen. The zero value has the defaults.
type Options struct {
	// Entries is the number of entries of each of the two rings, 1 to the NIC's
	// MaxDescriptors. It is rounded up to a power of two, 2 at least. Zero is 64.
	Entries int
	// MaxPayload is the largest payload in bytes, the same at both ends. Zero is 8 KiB for
	// Dial; for Listen it is the client's choice, up to 64 KiB.
	MaxPayload int
	// FrameSize is the size in bytes of the first frame of each receive entry, in memory of
	// the ring's own. Zero is MaxPayload.
	FrameSize int
	// Reliability is Unreliable if zero.
	Reliability via.Reliability
	// Ptag is the protection tag of the ring and of its frames; nil is the NIC's.
	Ptag *via.Ptag
	// Shadow has messages built and read in host memory, and copied whole from and to the NIC's. That is
	// faster on a NIC whose memory is slow to read byte by byte, as it is over PCIe.
	Shadow bool
}

// complete fills in the defaults, and checks what the driver does not.
func (c Options) complete(nic *via.NIC) (Options, error) {
	const op = "create ring"
	if c.Entries == 0 {
		c.Entries = min(defaultEntries, nic.Query().MaxDescriptors)
	}
	if c.MaxPayload == 0 {
		c.MaxPayload = min(defaultMaxPayload, int(nic.MaxPayload()))
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
	switch {
	case c.MaxPayload < 0 || c.MaxPayload > int(nic.MaxPayload()):
		return c, refuse(nic, op, via.ErrInvalidMTU, "", "MaxPayload is %d, this NIC takes up to %d", c.MaxPayload, nic.MaxPayload())
	case c.FrameSize < NoPayload || c.FrameSize > math.MaxUint32:
		return c, refuse(nic, op, via.ErrInvalidParameter, "", "FrameSize is %d", c.FrameSize)
	}
	return c, nil
}
