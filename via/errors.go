package via

import (
	"context"
	"errors"
	"io"

	"github.com/trapeze-nic/trapeze/driver"
)

// Error is the error of this package: Op says what was attempted, Device on which
// NIC, Code is the return code, Err the cause, and Hint says what can be done about
// it. errors.Is finds both the Code and whatever the cause matches. Code is 0 if
// VIA has none for the cause, and Err nil if the code says all.
//
// The calls of the data path return three codes bare, because they are answers and
// not failures: ErrNotDone, ErrQueueEmpty and ErrQueueFull.
type Error = driver.Error

// StatusError is a descriptor that completed in error, with its Status. It matches
// ErrDescriptor, and, if the peer or an error has ended the connection, what Ended
// says: ErrDisconnected, ErrPeerLost or ErrConnectionBroken; else that is zero. The
// descriptor is returned along with it.
type StatusError = driver.StatusError

// Ended reports whether err says that a connection has ended: by its peer, by the death of
// the peer, by an error, or as io.EOF of a Stream.
func Ended(err error) bool {
	for _, way := range [...]error{ErrDisconnected, ErrPeerLost, ErrConnectionBroken, io.EOF} {
		if errors.Is(err, way) {
			return true
		}
	}
	return false
}

// Check fails with ErrInvalidParameter for a nil NIC and with ErrClosed for one that is closed. Its error names op.
func (n *NIC) Check(op string) error { return n.check(context.Background(), op) }

// check fails if ctx is missing or the NIC is nil or closed.
func (n *NIC) check(ctx context.Context, op string) error {
	if n == nil {
		return &Error{Op: op, Code: ErrInvalidParameter, Hint: "the NIC must not be nil"}
	}
	return n.CheckCall(ctx, op)
}

func (n *NIC) checkDiscriminator(op, d string) error {
	if len(d) > MaxDiscriminator {
		return n.Refuse(op, ErrInvalidParameter, "", "discriminator of %d bytes, at most %d are allowed", len(d), MaxDiscriminator)
	}
	return nil
}
