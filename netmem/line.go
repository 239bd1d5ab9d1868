package netmem

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// line is one connection with a server. What fails on it ends it: a link gets a new one.
type line struct {
	conn        conn
	to          via.Address
	incarnation uint64
	// record is that of the server's pool, as the server said last.
	record atomic.Pointer[protocol.Record]
	// window reads the server's memory; nil: the client does not.
	window   atomic.Pointer[window]
	once     sync.Once
	ctx      context.Context // ends with close
	end      func()
	why      error         // it has ended; guarded by the link
	timeout  time.Duration // of each call
	contexts sync.Pool
}

// dialLine connects with a server and asks what it lends.
func dialLine(ctx context.Context, f fabric, to via.Address, depth int, timeout time.Duration) (*line, protocol.Description, error) {
	c, err := f.dial(ctx, to, depth)
	if err != nil {
		return nil, protocol.Description{}, err
	}
	l := &line{conn: c, to: to, timeout: timeout}
	l.ctx, l.end = context.WithCancel(context.Background())
	l.record.Store(&protocol.Record{})
	d, err := l.describe(ctx, &protocol.Request{Operation: protocol.Describe})
	if err != nil {
		l.close()
		return nil, d, err
	}
	return l, d, nil
}

// call sends a request and waits for its reply, until the line's timeout. It fails unless
// there is a reply of this protocol, whatever that says. While the server is busy it asks again, for half of the timeout.
func (l *line) call(ctx context.Context, q *protocol.Request, send, into ring.Frame) (protocol.Reply, answer, error) {
	deadline := time.Now().Add(l.timeout)
	p := newCallContext(ctx, deadline, &l.contexts)
	defer p.release()
	if q.Operation != protocol.Describe {
		q.Incarnation = l.incarnation
	}
	q.Encode(p.request[:])
	for {
		reply, err := l.conn.call(p, p.request[:], send, into)
		if err != nil {
			return protocol.Reply{}, reply, err
		}
		r, err := protocol.ParseReply(q.Operation, reply.bytes[:reply.size])
		switch {
		case err != nil:
			return r, reply, fmt.Errorf("%w: %w", ErrProtocol, err)
		case r.Incarnation != l.incarnation && l.incarnation != 0, r.Result == protocol.OtherIncarnation:
			return r, reply, ErrRestarted
		case int(r.Length) != reply.length:
			return r, reply, fmt.Errorf("%w: %d bytes came, and it says %d", ErrProtocol, reply.length, r.Length)
		case r.Result != protocol.Busy || q.Operation.OfHosts() || ctx.Err() != nil || time.Until(deadline) < l.timeout/2:
			return r, reply, nil
		}
		time.Sleep(pause)
	}
}

// pause between tries while a server is busy.
const pause = 50 * time.Microsecond

// describe asks what is lent, or has the server adopt a record.
func (l *line) describe(ctx context.Context, q *protocol.Request) (protocol.Description, error) {
	r, reply, err := l.call(ctx, q, ring.Frame{}, ring.Frame{})
	switch {
	case err != nil:
		return protocol.Description{}, err
	case r.Result == protocol.OtherPool:
		return protocol.Description{Record: protocol.Record{Pool: r.Version}}, ErrOtherPool
	case r.Result != protocol.OK:
		return protocol.Description{}, refusal(r.Result)
	}
	d, err := protocol.ParseDescription(reply.bytes[:reply.size])
	if err != nil {
		return d, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	if l.incarnation == 0 { // it is the first call
		l.incarnation = r.Incarnation
	}
	l.record.Store(&d.Record)
	return d, nil
}

// adopt has the server adopt a record, in which it was let in since an epoch. The error is ErrEpoch if it knows a
// newer one.
func (l *line) adopt(ctx context.Context, r protocol.Record, since uint64, joining bool) error {
	q := protocol.Request{Operation: protocol.Adopt}
	q.SetRecord(r, since, joining)
	_, err := l.describe(ctx, &q)
	return err
}

// blank says that the server belongs to no pool: it is new, or has lost what it had.
func (l *line) blank() bool { return l.record.Load().Pool == 0 }

// fetch fetches as much as a frame has room for: a part of a page, or the stamps of the pages from it on
// (protocol.Fetch, protocol.Stamps). With a lookup it may find out which host has the page instead. Its errors end the
// line.
func (l *line) fetch(ctx context.Context, what protocol.Operation, epoch, page uint64, offset int, into ring.Frame, find *lookup) (protocol.Reply, error) {
	q := protocol.Request{Operation: what, Epoch: epoch, Page: page, Offset: uint32(offset), Length: uint32(into.Length)}
	if find != nil {
		q.Operation, q.Offset, q.Next = protocol.Find, uint32(find.asks+1), uint64(find.among)
	}
	r, a, err := l.call(ctx, &q, ring.Frame{}, into)
	if err != nil || r.Result != protocol.OK {
		return r, err
	}
	want := into.Length
	if find != nil {
		if find.Found, err = protocol.ParseFound(a.bytes[:a.size]); err != nil {
			return r, fmt.Errorf("%w: %w", ErrProtocol, err)
		}
		if find.Host >= 0 {
			want = 0
		}
	}
	if int(r.Length) != want {
		err = fmt.Errorf("%w: %d bytes came of %d", ErrProtocol, r.Length, want)
	}
	return r, err
}

// write writes a page. Its errors end the line.
func (l *line) write(ctx context.Context, epoch, page uint64, from ring.Frame, condition protocol.Condition, expected, next Version, client uint64) (protocol.Reply, error) {
	q := protocol.Request{
		Epoch:     epoch,
		Operation: protocol.Write, Condition: condition, Length: uint32(from.Length), Page: page,
		Expected: uint64(expected), Next: uint64(next), Client: client,
	}
	r, _, err := l.call(ctx, &q, from, ring.Frame{})
	return r, err
}

// close ends the line. When it returns nothing lands in any frame any more.
func (l *line) close() {
	l.end()
	l.dropWindow(l.window.Load())
	l.once.Do(l.conn.close)
}

// onNIC is the fabric that a NIC is.
type onNIC struct{ *via.NIC }

func (n onNIC) alloc(ctx context.Context, bytes int, a via.MemoryAttributes) (*via.Memory, error) {
	a.RDMARead = a.RDMARead && n.Query().RDMARead != 0
	return n.Alloc(ctx, bytes, a)
}

func (n onNIC) free(m *via.Memory) error { return m.Close(context.Background()) }

func (n onNIC) dial(ctx context.Context, to via.Address, depth int) (conn, error) {
	// The payload of a reply lands where its call says, and never in a frame of the ring.
	r, err := ring.Dial(ctx, n.NIC, to.String(), ringOptions(depth, ring.NoPayload))
	if err != nil {
		return nil, err
	}
	caller, err := ring.NewCaller(r)
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return &ringConn{n.NIC, to, r, caller}, nil
}

// ringConn is a connection by a ring.
type ringConn struct {
	nic    *via.NIC
	to     via.Address
	ring   *ring.Ring
	caller *ring.Caller
}

func (c *ringConn) call(ctx context.Context, request []byte, send, into ring.Frame) (a answer, err error) {
	r, err := c.caller.Call(ctx, request, send, into)
	a.size, a.length = copy(a.bytes[:], r.Bytes()), r.Length
	return a, err
}

func (c *ringConn) close() {
	// The server is told, if it still listens; there is nothing else to do.
	_ = c.caller.Close()
	_ = c.ring.Close()
}
