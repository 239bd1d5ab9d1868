package netmem

import (
	"context"
	"errors"

	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// fabric gives clients and servers their memory and connections: a NIC, or in the model of the
// tests a network in virtual time.
type fabric interface {
	// alloc returns memory from which payloads are sent, and to which they come; free ends that.
	alloc(ctx context.Context, bytes int) (*via.Memory, error)
	free(*via.Memory) error
	// dial connects with a server, to have depth requests under way.
	dial(ctx context.Context, to via.Address, depth int) (conn, error)
}

// conn is a client's end of a connection.
type conn interface {
	// call is ring.Caller.Call.
	call(ctx context.Context, request []byte, send, into ring.Frame) (answer, error)
	// close ends the connection. When it returns nothing lands in any frame any more.
	close()
}

// answer is a reply: size bytes, and the length of the payload that has landed.
type answer struct {
	bytes        [ring.MaxRequest]byte
	size, length int
}

// replier is a request that a server answers, such as a ring.Request.
type replier interface {
	Room() int
	Reply(b []byte, payload ring.Frame, done func()) error
}

// onNIC is the fabric that a NIC is.
type onNIC struct{ *via.NIC }

func (n onNIC) alloc(ctx context.Context, bytes int) (*via.Memory, error) {
	return n.Alloc(ctx, bytes, via.MemoryAttributes{})
}

func (n onNIC) free(m *via.Memory) error { return m.Close(context.Background()) }

func (n onNIC) dial(ctx context.Context, to via.Address, depth int) (conn, error) {
	r, err := ring.Dial(ctx, n.NIC, to.String(), ringOptions(depth))
	if err != nil {
		return nil, err
	}
	caller, err := ring.NewCaller(r)
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return &ringConn{r, caller}, nil
}

// ringConn is a connection by a ring.
type ringConn struct {
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
