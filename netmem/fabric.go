package netmem

import (
	"context"
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
	// dial connects with a server, to have depth requests under way.
	dial(ctx context.Context, to via.Address, depth int) (conn, error)
}

// conn is a client's end of a connection.
type conn interface {
	// call is ring.Caller.Call.
	call(ctx context.Context, request []byte, send, into ring.Frame) (answer, error)
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
