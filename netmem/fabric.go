package netmem

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// fabric gives clients and servers their memory and connections: a NIC, or in the model of the
// tests a network in virtual time.
type fabric interface {
	// alloc returns memory from which payloads are sent, and to which they come; free ends that.
	alloc(ctx context.Context, bytes int, a via.MemoryAttributes) (*via.Memory, error)
	free(*via.Memory) error
	// dial connects with a server. Calls take no longer than timeout.
	dial(ctx context.Context, to via.Address, timeout time.Duration) (conn, error)
}

// conn is a client's end of a connection.
type conn interface {
	// call is that of a ring.Caller.
	call(ctx context.Context, q protocol.Request, send, into ring.Frame) (ring.Reply, error)
	// reader connects with the same server to read its memory. Reads that take frames have that long.
	reader(ctx context.Context, timeout time.Duration) (reader, error)
	// close ends the connection. When it returns nothing lands in any frame any more.
	close()
}

// reader reads the memory of a server, which takes no part in it. One goroutine at a time uses it.
type reader interface {
	// read reads into.Length bytes at address, if that is not 0, and then the place at table. It reports
	// whether both were copied at once, without a frame. After an error only close may be called.
	read(ctx context.Context, handle uint32, address uint64, into ring.Frame, table uint64, place *[protocol.PlaceSize]byte) (atOnce bool, err error)
	// close ends it. When it returns nothing lands in any frame any more.
	close()
}

type onNIC struct{ *via.NIC }

func (n onNIC) alloc(ctx context.Context, bytes int, a via.MemoryAttributes) (*via.Memory, error) {
	a.RDMARead = a.RDMARead && n.Query().RDMARead != 0
	return n.Alloc(ctx, bytes, a)
}

func (n onNIC) free(m *via.Memory) error { return m.Close(context.Background()) }

func (n onNIC) dial(ctx context.Context, to via.Address, timeout time.Duration) (conn, error) {
	// The payload of a reply lands where its call says, and never in a frame of the ring.
	r, err := ring.Dial(ctx, n.NIC, to.String(), ringOptions(ring.NoPayload))
	if err != nil {
		return nil, err
	}
	caller, err := ring.NewCaller(r)
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	caller.Timeout = timeout
	return &ringConn{caller, n.NIC, to, r}, nil
}

type ringConn struct {
	*ring.Caller
	nic  *via.NIC
	to   via.Address
	ring *ring.Ring
}

func (c *ringConn) call(ctx context.Context, q protocol.Request, send, into ring.Frame) (ring.Reply, error) {
	var b [protocol.RequestSize]byte
	q.Encode(b[:])
	return c.Caller.Call(ctx, b[:], send, into)
}

func (c *ringConn) close() {
	// The server is told, if it still listens; there is nothing else to do.
	_ = c.Caller.Close()
	_ = c.ring.Close()
}

// ringOptions are those of both ends, which must agree on the largest payload before the
// client knows how large pages are. Each request that comes has frame bytes of memory.
func ringOptions(frame int) ring.Options {
	return ring.Options{Entries: depth, MaxPayload: MaxPage, FrameSize: frame, Reliability: via.ReliableDelivery}
}

// draw draws a number that is not zero.
func draw() uint64 { return max(1, rand.Uint64()) }

// readerEnds bounds the end of a connection by which memory is read.
const readerEnds = 5 * time.Second
