package netmem

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
	"github.com/trapeze-nic/trapeze/ring"
)

// Server lends memory by pages. Its methods may be called from several
// goroutines.
type Server struct {
	fabric      fabric
	options     ServerOptions
	storage     *storage // nil with guest
	rooms       *rooms
	listener    *ring.Listener
	incarnation uint64
	ctx         context.Context // ends with Close
	cancel      context.CancelFunc
	running     sync.WaitGroup
	closed      atomic.Bool
	counters    serverCounters
	readers     atomic.Int64 // clients that may read the memory
	directory   directory
	// guest and kept are of a server for pages of others in a client's cache: what carries requests out, and how many
	// bytes are kept. Both are nil of one that lends memory.
	guest func(x *session, room int, q *protocol.Request, r *protocol.Reply, payload []byte) (int, *loan)
	kept  func() uint64

	// membership changes with adopting held. That is held for reading while a request is carried out, so that none of
	// an older epoch meets what comes later.
	membership atomic.Pointer[membership]
	adopting   sync.RWMutex

	mu       sync.Mutex
	failed   error
	sessions map[*session]bool
	begun    uint64 // sessions so far
}

type serverCounters struct {
	fetches, writes, refused, out, in atomic.Uint64
	clients                           atomic.Int64
}

// newServer makes a server that does not listen. It is released also if that fails.
func newServer(ctx context.Context, f fabric, lent *storage, o ServerOptions) (_ *Server, err error) {
	s := &Server{
		fabric: f, storage: lent, options: o, incarnation: draw(), sessions: map[*session]bool{},
		directory: directory{pages: map[uint64]*holding{}},
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.membership.Store(&membership{})
	s.rooms, err = newRooms(ctx, f, stampFrames, o.Page)
	return s, err
}

func (s *Server) release() (err error) {
	if s.storage != nil {
		err = s.storage.close()
	}
	if s.rooms != nil {
		err = errors.Join(err, s.fabric.free(s.rooms.memory))
	}
	return err
}

// ServerStats are the counters of a server since it was started.
type ServerStats = protocol.Counters

// session answers the requests of one client.
type session struct {
	server *Server
	end    func()        // ends the session
	lent   atomic.Int32  // loans that this client has not taken yet
	taken  atomic.Uint64 // loans that it has
	asked  atomic.Uint64 // requests about pages
	number uint64        // sessions are numbered as they begin
	ending bool          // it was ended by enter; guarded by the server
	// Of the request that is being answered; here they are not allocated for each.
	request protocol.Request
	reply   protocol.Reply
	buffer  [ring.MaxRequest]byte
	// cooperates: the client has used the directory, as host number host; -1 is none.
	cooperates bool
	host       int
}
