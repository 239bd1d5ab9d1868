package conform

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/via"
)

// dial has client ask server's NIC for a connection, and returns the request as
// the server sees it and a channel for the client's outcome.
func dial(ctx context.Context, t T, client *via.VI, server *via.NIC) (*via.Connection, <-chan error) {
	t.Helper()
	const local = "conform"
	var attempt atomic.Uint32
	name := func(n uint32) string { return fmt.Sprintf("client %d", n) }
	outcome := make(chan error, 1)
	go func() {
		for {
			_, err := client.ConnectRequest(ctx, via.Address{MAC: server.Query().Address, Discriminator: local}, name(attempt.Add(1)))
			if !errors.Is(err, via.ErrNoMatch) {
				outcome <- err
				return
			}
			runtime.Gosched()
		}
	}()
	for {
		c := Must(server.ConnectWait(ctx, local))(t)
		if c.Discriminator == name(attempt.Load()) {
			return c, outcome
		}
		// It is a late copy of a request that was answered by ErrNoMatch.
		if err := c.Reject(ctx); err != nil {
			wantError(t, "reject a late copy", err, via.ErrWithdrawn)
		}
	}
}
