package netmem

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/internal/netmem/protocol"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// line is one connection with a server. What fails on it ends it: a link gets a new one.
type line struct {
	ring        *ring.Ring
	caller      *ring.Caller
	incarnation uint64
	// trusted: the server has all pages that it should have, but for those that its link
	// still owes it.
	trusted atomic.Bool
	once    sync.Once
	why     error         // it has ended; guarded by the link
	timeout time.Duration // of each call
}

// requests are buffers for requests.
var requests = sync.Pool{New: func() any { return new([protocol.RequestSize]byte) }}

// dialLine connects with a server and asks what it lends.
func dialLine(ctx context.Context, nic *via.NIC, to via.Address, depth int, timeout time.Duration) (*line, protocol.Description, error) {
	r, err := ring.Dial(ctx, nic, to, ringOptions(depth))
	if err != nil {
		return nil, protocol.Description{}, err
	}
	caller, err := ring.NewCaller(r)
	if err != nil {
		return nil, protocol.Description{}, errors.Join(err, r.Close())
	}
	l := &line{ring: r, caller: caller, timeout: timeout}
	d, err := l.describe(ctx, &protocol.Request{Operation: protocol.Describe})
	if err != nil {
		l.close()
		return nil, d, err
	}
	return l, d, nil
}

// call sends a request and waits for its reply, until the line's timeout. It fails unless
// there is a reply of this protocol, whatever that says.
func (l *line) call(ctx context.Context, q *protocol.Request, send, into ring.Frame) (protocol.Reply, ring.Reply, error) {
	p := patient(ctx, l.timeout)
	defer p.release()
	b := requests.Get().(*[protocol.RequestSize]byte)
	defer requests.Put(b)
	if q.Operation != protocol.Describe {
		q.Incarnation = l.incarnation
	}
	q.Encode(b[:])
	reply, err := l.caller.Call(p, b[:], send, into)
	if err != nil {
		return protocol.Reply{}, reply, err
	}
	r, err := protocol.ParseReply(q.Operation, reply.Bytes())
	switch {
	case err != nil:
		return r, reply, fmt.Errorf("%w: %w", ErrProtocol, err)
	case r.Incarnation != l.incarnation && l.incarnation != 0:
		return r, reply, ErrRestarted
	case r.Result == protocol.OtherIncarnation:
		return r, reply, ErrRestarted
	case int(r.Length) != reply.Length:
		return r, reply, fmt.Errorf("%w: %d bytes came, and it says %d", ErrProtocol, reply.Length, r.Length)
	}
	return r, reply, nil
}

// describe asks what is lent, or joins a pool.
func (l *line) describe(ctx context.Context, q *protocol.Request) (protocol.Description, error) {
	r, reply, err := l.call(ctx, q, ring.Frame{}, ring.Frame{})
	switch {
	case err != nil:
		return protocol.Description{}, err
	case r.Result == protocol.OtherPool:
		return protocol.Description{Pool: r.Version}, ErrOtherPool
	case r.Result != protocol.OK:
		return protocol.Description{}, refusal(r.Result)
	}
	d, err := protocol.ParseDescription(reply.Bytes())
	if err != nil {
		return d, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	if l.incarnation == 0 { // it is the first call
		l.incarnation = r.Incarnation
	}
	return d, nil
}

// join makes the server one of a pool.
func (l *line) join(ctx context.Context, pool uint64, base Version) (protocol.Description, error) {
	return l.describe(ctx, &protocol.Request{Operation: protocol.Join, Client: pool, Next: uint64(base)})
}

// pause between tries while a server is busy.
const pause = 50 * time.Microsecond

// patiently is call for pages: it asks again while the server is busy.
func (l *line) patiently(ctx context.Context, q *protocol.Request, send, into ring.Frame) (protocol.Reply, error) {
	var end time.Time
	for {
		r, _, err := l.call(ctx, q, send, into)
		if err != nil || r.Result != protocol.Busy {
			return r, err
		}
		switch now := time.Now(); {
		case end.IsZero():
			end = now.Add(l.timeout)
		case now.After(end) || ctx.Err() != nil:
			return r, nil
		}
		time.Sleep(pause)
	}
}

// fetch fetches a part of a page into a frame. Its errors end the line.
func (l *line) fetch(ctx context.Context, page uint64, offset int, into ring.Frame) (protocol.Reply, error) {
	q := protocol.Request{Operation: protocol.Fetch, Page: page, Offset: uint32(offset), Length: uint32(into.Length)}
	r, err := l.patiently(ctx, &q, ring.Frame{}, into)
	if err == nil && r.Result == protocol.OK && int(r.Length) != into.Length {
		err = fmt.Errorf("%w: %d bytes came of %d", ErrProtocol, r.Length, into.Length)
	}
	return r, err
}

// write writes a page. Its errors end the line.
func (l *line) write(ctx context.Context, page uint64, from ring.Frame, condition protocol.Condition, expected, next Version, client uint64) (protocol.Reply, error) {
	q := protocol.Request{
		Operation: protocol.Write, Condition: condition, Length: uint32(from.Length), Page: page,
		Expected: uint64(expected), Next: uint64(next), Client: client,
	}
	return l.patiently(ctx, &q, from, ring.Frame{})
}

// close ends the line. When it returns nothing lands in any frame any more.
func (l *line) close() {
	l.once.Do(func() {
		// The server is told, if it still listens; there is nothing else to do.
		_ = l.caller.Close()
		_ = l.ring.Close()
	})
}
