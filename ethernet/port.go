package ethernet

import (
	"context"
	"time"
)

// Port is an open NIC. Methods may be called from several goroutines; they may wait for
// the device, up to Options.Timeout, and are not for the data path. Errors are *Error.
//
// A port whose device has failed answers everything but Stats and Close with the
// reason. Restart brings it back if the device still answers.
type Port interface {
	// Info describes the port. It does not change.
	Info() Info
	// Queue returns queue i, counted from 0; nil if there is none.
	Queue(i int) Queue
	// Link asks the device how its link is.
	Link() (Link, error)

	// MAC returns the address that frames are received for.
	MAC() MAC
	// SetMAC changes it. It fails with ErrConfig for a group address and zero.
	SetMAC(m MAC) error
	// SetPromiscuous has all frames received, whatever their destination and VLAN, or
	// ends that.
	SetPromiscuous(on bool) error
	// SetMulticast says which groups frames are received for besides broadcast, in place
	// of those before. Frames to other groups may come too, as devices compare hashes.
	SetMulticast(groups []MAC) error
	// SetVLANs says of which VLANs, 0 to 4095, tagged frames are received, in place of
	// those before; nil for all. Frames without a tag are always received.
	SetVLANs(ids []uint16) error

	// Stats returns what was counted since Open. It works on a port that has failed
	// too, then without the device's own.
	Stats() Stats
	// Restart resets the device and sets it up again as it was. Frames that are in its
	// rings are lost, and counted. Queues answer as before afterwards.
	Restart(ctx context.Context) error
	// Close stops the device, makes sure that it touches no memory any more, and gives
	// everything back, the device too. The pool stays. Callers that wait get ErrClosed.
	// Closing again does nothing.
	Close() error
}

// Queue is a receive ring and a send ring. It is used by one goroutine at a time, but Wait
// may run beside the other methods; the goroutines of different queues do not disturb each
// other. Its methods fail with
// ErrClosed after the port was closed, which may happen at any time, and with the reason,
// an *Error, once the device has failed.
type Queue interface {
	// Receive fills frames, from the front, with frames that have arrived, oldest first,
	// and returns how many. Their buffers are the caller's from then on: Send passes them
	// on, Cache().Free gives them back. None is not an error. The device gets a new buffer
	// for each; while the pool has none, frames stay in the ring, and then in the device.
	Receive(frames []Frame) (int, error)
	// Send sends frames, in order, and returns how many it takes; the
	// others are still the caller's. Less than all and no error: the ring is full. With
	// ErrBadFrame the first that was not taken cannot be sent. Buffers of frames that are
	// sent go to the queue's cache, in this call or a later one.
	Send(frames []Frame) (int, error)
	// Unsent takes back the buffers of frames that have been sent, and returns how many
	// are still to be sent.
	Unsent() (int, error)
	// Cache is where the queue takes buffers from and puts them. Its methods TakeAll and
	// GiveAll are the driver's.
	Cache() *Cache
	// Wait returns when frames may have arrived, or with ctx's error. It sleeps until an
	// interrupt if Options.Interrupts is set, or else looks again and again. It returns
	// at least each 10 ms, whatever interrupts come.
	Wait(ctx context.Context) error
}

// WaitLimit limits Queue.Wait's wait without a frame: so much later an interrupt
// that never comes is made up for.
const WaitLimit = 10 * time.Millisecond

// Info describes a port.
type Info struct {
	// Device is the address by which it was opened, Driver and Model what it is.
	Device, Driver, Model string
	// Tested says that the driver was run on this model, hardware or its emulation.
	Tested bool
	// MAC is the address that the device came with.
	MAC MAC
	// Options is the configuration with the defaults filled in.
	Options Options
	// Vectors is the number of interrupts that are in use, 0 for none: Wait then polls.
	Vectors int
}

// Link says how the link of a port is.
type Link struct {
	Up bool
	// Speed in Mbit/s, 0 if the device does not say.
	Speed      int
	FullDuplex bool
}

// WaitLink waits until the link of a port is up. It fails with the context's error.
func WaitLink(ctx context.Context, p Port) (Link, error) {
	tick := time.NewTicker(WaitLimit)
	defer tick.Stop()
	for {
		link, err := p.Link()
		if err != nil || link.Up {
			return link, err
		}
		select {
		case <-ctx.Done():
			return link, &Error{Op: "wait for the link of", Device: p.Info().Device, Err: ctx.Err(), Hint: "is the cable in?"}
		case <-tick.C:
		}
	}
}
