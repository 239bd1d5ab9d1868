package netmem

import (
	"context"
	"errors"
	"time"

	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// ServerInfo describes the memory that a server lends, and has its counts.
type ServerInfo struct {
	// All in bytes; Capacity bounds what can be stored.
	Page     int   `json:"page_bytes"`
	Span     int64 `json:"span_bytes" help:"how far addresses reach"`
	Capacity int64 `json:"capacity_bytes"`
	// ReadOnly: clients may not write.
	ReadOnly bool `json:"read_only"`
	// Incarnation tells it from itself before a restart, and Pool is the number that it
	// shares with the servers that it was first used with; zero if it has not been.
	Incarnation, Pool uint64      `json:"-"`
	Stats             ServerStats `json:"-"`
}

// Ask asks a server what it lends and what it has counted. It takes timeout at most.
func Ask(ctx context.Context, nic *via.NIC, server string, timeout time.Duration) (ServerInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	at, err := resolve(ctx, nic, []string{server})
	if err != nil {
		return ServerInfo{}, err
	}
	fail := func(err error) (ServerInfo, error) {
		return ServerInfo{}, &Error{Op: "ask", Device: at[0].String(), Err: err}
	}
	l, d, err := dialLine(ctx, onNIC{nic}, at[0], timeout)
	if err != nil {
		return fail(errors.Join(ErrUnavailable, err))
	}
	defer l.close()
	r, reply, err := l.call(ctx, &protocol.Request{Operation: protocol.Stat}, ring.Frame{}, ring.Frame{})
	switch {
	case err != nil:
		return fail(err)
	case r.Result != protocol.OK:
		return fail(refusal(r.Result))
	}
	counters, err := protocol.ParseCounters(reply.Bytes())
	if err != nil {
		return fail(err)
	}
	return ServerInfo{
		Page: int(d.Page), Span: int64(d.Span), Capacity: int64(d.Capacity), ReadOnly: d.ReadOnly,
		Incarnation: l.incarnation, Pool: d.Pool, Stats: counters,
	}, nil
}
