package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/trapeze-nic/trapeze/via"
)

// fileDiscriminator names the connection point of file transfers.
const fileDiscriminator = "trapeze-file/3"

// File transfers use messages of up to chunk bytes unless the NIC's are
// smaller. Receives are posted deep enough that the sender seldom waits for
// one; the link's flow control does the rest.
const (
	chunk         = 256 << 10
	fileRecvDepth = 32
	fileSendDepth = 8
	// maxChunk bounds what a sender can make a receiver allocate.
	maxChunk = 1 << 20
)

func fileOptions(n int) via.ConnOptions {
	return via.ConnOptions{Reliability: via.ReliableDelivery, MaxMessage: n, SendDepth: fileSendDepth, RecvDepth: fileRecvDepth}
}

// acceptOptions decides about the offer of a connection: reliable, and with
// messages for which there is memory.
func acceptOptions(r via.Remote) (via.ConnOptions, error) {
	if r.Reliability != via.ReliableDelivery {
		return via.ConnOptions{}, fmt.Errorf("it asks for %v, a file needs %v", r.Reliability, via.ReliableDelivery)
	}
	if r.MaxTransfer > maxChunk {
		return via.ConnOptions{}, fmt.Errorf("it asks for messages of up to %d bytes, a file takes %d at most", r.MaxTransfer, maxChunk)
	}
	return fileOptions(int(r.MaxTransfer)), nil
}

// dial connects with the listener at an address, within timeout.
func dial(ctx context.Context, nic *via.NIC, remote via.Address, o via.ConnOptions, timeout time.Duration) (*via.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	o.Local = remote.Discriminator
	c, err := via.Dial(ctx, nic, remote.String(), o)
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(cause, context.DeadlineExceeded) {
		err = cause
	}
	return c, err
}
