package netmem

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// Server lends memory by pages. Its methods may be called from several
// goroutines.
type Server struct {
	fabric      fabric
	options     ServerOptions
	storage     *storage // nil with guests
	guests      guests   // nil of a server that lends memory
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

// guests is the part of a client's cache that has pages of others.
type guests interface {
	// carryOut is session.carryOut for a request of another client.
	carryOut(x *session, room int, q *protocol.Request, r *protocol.Reply, payload []byte) *loan
	stored() uint64 // bytes
}

// newServer makes a server that does not listen: for guests, or for memory, which it lends.
func newServer(ctx context.Context, f fabric, o ServerOptions, g guests) (*Server, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	s := &Server{
		fabric: f, guests: g, options: o, incarnation: draw(), sessions: map[*session]bool{},
		directory: directory{pages: map[uint64]*holding{}},
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.membership.Store(&membership{})
	var err error
	if s.rooms, err = newRooms(ctx, f, stampFrames, o.Page); err == nil && g == nil {
		s.storage, err = newStorage(ctx, f, o.Page, uint64(o.Span)/uint64(o.Page), uint64(o.Size)/uint64(o.Page))
	}
	if err != nil {
		return nil, errors.Join(asError(fmt.Sprintf("lend %d bytes", o.Size), err), s.Close())
	}
	return s, nil
}

// ServerStats are the counters of a server since it was started.
type ServerStats = protocol.Counters

// NewServer begins to lend. The server runs until Close, and needs the NIC until then.
// Errors: ErrOption, and what the NIC says when it has no memory or the name is in use.
func NewServer(ctx context.Context, nic *via.NIC, o ServerOptions) (*Server, error) {
	if err := nic.Check("lend memory"); err != nil {
		return nil, err
	}
	s, err := newServer(ctx, onNIC{nic}, o, nil)
	if err != nil {
		return nil, err
	}
	if err := s.listen(nic); err != nil {
		return nil, errors.Join(asError("lend memory", err), s.Close())
	}
	s.running.Go(func() { s.admitReaders(nic) })
	return s, nil
}

// listen has clients find the server.
func (s *Server) listen(nic *via.NIC) (err error) {
	if s.listener, err = ring.Listen(nic, s.options.Name, ringOptions(s.options.Page)); err != nil {
		return err
	}
	s.running.Go(s.accept)
	s.running.Go(s.watch)
	return nil
}

func (s *Server) accept() {
	for {
		r, err := s.listener.Accept(s.ctx)
		if err != nil {
			if s.ctx.Err() == nil {
				s.mu.Lock()
				s.failed = err
				s.mu.Unlock()
				s.cancel()
			}
			return
		}
		s.running.Go(func() { s.serve(r) })
	}
}

// Address is where clients find the server.
func (s *Server) Address() via.Address { return s.listener.Address() }

// Done is closed when the server has ended, by Close or because its NIC has failed; Err
// says which.
func (s *Server) Done() <-chan struct{} { return s.ctx.Done() }

// Err is nil while the server runs and after Close, and else why it has ended.
func (s *Server) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// Stats returns what has been counted.
func (s *Server) Stats() ServerStats {
	c, stored := &s.counters, s.storage.stored
	if s.guests != nil {
		stored = s.guests.stored
	}
	return ServerStats{
		Fetches: c.fetches.Load(), Writes: c.writes.Load(), Refused: c.refused.Load(), BytesOut: c.out.Load(), BytesIn: c.in.Load(),
		Stored: stored(), Capacity: uint64(s.options.Size), Clients: uint64(max(0, c.clients.Load())),
	}
}

// Close ends the server and its connections. What it lends from memory is gone. Closing
// again returns nil.
func (s *Server) Close() (err error) {
	if s.closed.Swap(true) {
		return nil
	}
	s.cancel()
	if s.listener != nil {
		err = s.listener.Close()
	}
	s.running.Wait()
	if s.storage != nil {
		err = errors.Join(err, s.fabric.free(s.storage.memory))
	}
	if s.rooms != nil {
		err = errors.Join(err, s.fabric.free(s.rooms.memory))
	}
	return err
}

// Page is the size of a page in bytes.
func (s *Server) Page() int { return s.options.Page }

// Span returns the end of the addresses, in bytes.
func (s *Server) Span() int64 { return s.options.Span }

// admitReaders connects clients that read the memory with the pages, until the server ends.
func (s *Server) admitReaders(nic *via.NIC) {
	if s.storage.window() == nil {
		return
	}
	for {
		request, err := nic.ConnectWait(s.ctx, s.options.Name+protocol.DirectSuffix)
		if err != nil {
			return // the name is too long, or the server ends
		}
		if s.readers.Add(1) > s.counters.clients.Load() { // each client needs one
			s.readers.Add(-1)
			_ = request.Reject(s.ctx) // it learns that by its deadline
			continue
		}
		s.running.Go(func() {
			defer s.readers.Add(-1)
			s.lendTo(nic, request)
		})
	}
}

// lendTo lets a client read until it goes or the server ends. How a client ends is its own affair.
func (s *Server) lendTo(nic *via.NIC, request *via.Connection) {
	vi, err := nic.CreateVI(s.ctx, via.VIAttributes{MaxTransfer: MaxPage, SendDepth: 2, RecvDepth: 2, RDMARead: true}, nil, nil)
	if err != nil {
		_ = request.Reject(s.ctx)
		return
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), readerEnds)
		defer cancel()
		_ = vi.Abandon(ctx)
	}()
	posts, err := vi.NewDescriptors(s.ctx, 1, 0)
	if err == nil {
		err = vi.PostRecv(posts[0])
	}
	if err == nil {
		within, cancel := context.WithTimeout(s.ctx, s.options.Timeout)
		_, err = request.Accept(within, vi)
		cancel()
	}
	if err != nil {
		_ = request.Reject(s.ctx)
		return
	}
	_, _ = vi.RecvWait(s.ctx) // no message is expected: one ends the connection, as its end does
}
