package ring

import (
	"context"
	"errors"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/via"
)

// Dial connects with the program that listens at address, such as "alpha:pages" or
// "02:00:00:00:00:01/pages": see via.NIC.Resolve. While no program listens, Dial tries again until ctx ends, or
// for via.DialTimeout if ctx has no deadline. Then it fails with via.ErrTimeout, and with
// via.ErrNoMatch if the NIC answered.
func Dial(ctx context.Context, nic *via.NIC, address string, options Options) (*Ring, error) {
	to, err := nic.Resolve(ctx, address)
	if err != nil {
		return nil, err
	}
	o, err := options.complete(nic)
	if err != nil {
		return nil, err
	}
	r, err := newRing(ctx, nic, o)
	if err != nil {
		return nil, err
	}
	remote, err := r.d.Dial(ctx, to, "")
	if err != nil {
		return nil, errors.Join(err, inTime(r.free))
	}
	to.MAC = remote.MAC
	r.address = to
	return r, nil
}

// Listener takes connections of rings at one name of a NIC. A client that does not answer
// delays no other. Its methods may be called from several goroutines.
type Listener = driver.Listener[*Ring]

// Listen takes connections at name, 0 to via.MaxDiscriminator bytes, until the listener is
// closed. It fails with via.ErrAddressInUse if another listener of the NIC has the name.
// The options are those of each connection. Clients with another reliability or other payloads
// are refused.
func Listen(nic *via.NIC, name string, options Options) (*Listener, error) {
	if err := nic.Check("listen"); err != nil {
		return nil, err
	}
	o, err := options.complete(nic)
	if err != nil {
		return nil, err
	}
	open := options.MaxPayload == 0
	return driver.Listen(nic.NIC, name, driver.ListenConfig[*Ring]{
		Connect: func(ctx context.Context, request *driver.Connection) (*Ring, error) {
			mine := o
			if theirs := int(request.Remote.MaxTransfer) - MessageSize; open && theirs <= mostAsked {
				if mine.FrameSize == mine.MaxPayload {
					mine.FrameSize = theirs
				}
				mine.MaxPayload = theirs
			}
			return accept(ctx, nic, mine, request)
		}, Close: (*Ring).Close})
}

// accept sets up the ring for a client's request.
func accept(ctx context.Context, nic *via.NIC, o Options, request *driver.Connection) (*Ring, error) {
	switch {
	case request.Remote.Reliability != o.Reliability:
		return nil, via.ErrInvalidReliability
	case request.Remote.MaxTransfer != uint32(MessageSize+o.MaxPayload):
		return nil, via.ErrInvalidMTU
	}
	r, err := newRing(ctx, nic, o)
	if err != nil {
		return nil, err
	}
	r.address = via.Address{MAC: request.Remote.MAC, Discriminator: request.Discriminator}
	if _, err := request.Accept(ctx, r.d); err != nil {
		return nil, errors.Join(err, inTime(r.free))
	}
	return r, nil
}
