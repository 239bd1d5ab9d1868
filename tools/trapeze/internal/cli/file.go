package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/endpoint"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/transfer"
	"github.com/trapeze-nic/trapeze/via"
)

// fileDiscriminator names the connection point of file transfers.
var fileDiscriminator = []byte("trapeze-file/1")

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

func fileOptions(n int) endpoint.Options {
	return endpoint.Options{Reliability: via.ReliableDelivery, MaxMessage: n, SendDepth: fileSendDepth, RecvDepth: fileRecvDepth}
}

// acceptOptions decides about the offer of a connection: reliable, and with
// messages of a size that the protocol can live with.
func acceptOptions(r via.Remote) (endpoint.Options, error) {
	if r.Reliability != via.ReliableDelivery {
		return endpoint.Options{}, fmt.Errorf("it asks for %v, a file needs %v", r.Reliability, via.ReliableDelivery)
	}
	if r.MaxTransfer < transfer.MinMessage || r.MaxTransfer > maxChunk {
		return endpoint.Options{}, fmt.Errorf("it asks for messages of up to %d bytes, a file needs %d to %d", r.MaxTransfer, transfer.MinMessage, maxChunk)
	}
	return fileOptions(int(r.MaxTransfer)), nil
}

// dial makes an endpoint on nic and connects it within timeout.
func dial(ctx context.Context, nic *via.NIC, remote via.Address, o endpoint.Options, timeout time.Duration) (*endpoint.Endpoint, via.Remote, error) {
	e, err := endpoint.New(ctx, nic, o)
	if err != nil {
		return nil, via.Remote{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	r, err := e.Connect(ctx, remote, remote.Discriminator)
	if err != nil {
		// Why there is no connection matters more than how it is cleaned up.
		_ = e.Close()
		return nil, r, err
	}
	return e, r, nil
}

// dialFile connects to whoever waits for a file at mac.
func dialFile(ctx context.Context, nic *via.NIC, mac via.MAC, timeout time.Duration) (*endpoint.Endpoint, via.Remote, error) {
	o := fileOptions(min(chunk, int(nic.Query().MaxTransfer)))
	return dial(ctx, nic, via.Address{MAC: mac, Discriminator: fileDiscriminator}, o, timeout)
}

// fileListener waits for somebody with a file.
func fileListener(nic *via.NIC, refused func(via.Remote, error)) *endpoint.Listener {
	return &endpoint.Listener{NIC: nic, Discriminator: fileDiscriminator, Options: acceptOptions, Refused: refused}
}
