package netmem

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// Pages that can be lent, in bytes, and what is lent if nothing is said.
const (
	MinPage     = protocol.MinPage
	MaxPage     = protocol.MaxPage
	DefaultPage = 8 << 10
	// DefaultName is the name under which servers and clients meet.
	DefaultName = "netmem"
	// DefaultDepth is the number of requests of one client that can be under way.
	DefaultDepth = 64
	// defaultReplyTimeout is the time that a client may leave replies that it has asked for.
	defaultReplyTimeout = 5 * time.Second
	// defaultStrangers is the number of clients that may be connected and have never asked for a page.
	defaultStrangers = 16
)

// ServerOptions say what a server lends. The zero value, but for Size, has the defaults
// above.
type ServerOptions struct {
	// Name is the discriminator at which clients connect.
	Name string
	// Page is the size of a page in bytes, a power of two from MinPage to MaxPage.
	Page int
	// Size is the memory that is lent, in bytes; it is rounded up to whole pages.
	Size int64
	// Span is the end of the addresses, in bytes; zero is Size. Servers that share a
	// range between them have the same span, each with less memory than that.
	Span int64
	// ReadOnly refuses writes.
	ReadOnly bool
	// Depth is the number of requests of one client that can be under way.
	Depth int
	// Timeout is the time that a client may leave replies that it has asked for; then its
	// connection is ended, as pages that are being sent must not change. Zero is
	// 5 s.
	Timeout time.Duration
	// Strangers is the number of clients that may be connected and have never asked for a page, as each
	// takes memory: one more ends the connection of the oldest. Zero is 16.
	Strangers int
}

// Server lends memory by pages. Its methods may be called from several
// goroutines.
type Server struct {
	fabric      fabric
	options     ServerOptions
	storage     *storage // nil with host
	rooms       *stampRooms
	listener    *ring.Listener
	incarnation uint64
	ctx         context.Context // ends with Close
	cancel      context.CancelFunc
	running     sync.WaitGroup
	closed      atomic.Bool
	counters    serverCounters
	readers     atomic.Int64 // clients that may read the memory
	directory   directory
	// host, if it is not nil, has the pages that this server is for: those of others in a client's cache.
	host *lodging

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

// NewServer begins to lend. The server runs until Close, and needs the NIC until then.
// Errors: ErrOption, and what the NIC says when it has no memory or the name is in use.
func NewServer(ctx context.Context, nic *via.NIC, o ServerOptions) (*Server, error) {
	if err := nic.Check("lend memory"); err != nil {
		return nil, err
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	f := onNIC{nic}
	pages := uint64(o.Span) / uint64(o.Page)
	lent, err := newStorage(ctx, f, o.Page, pages, uint64(o.Size)/uint64(o.Page))
	if err != nil {
		return nil, asError(fmt.Sprintf("lend %d bytes", o.Size), err)
	}
	s, err := newServer(ctx, f, lent, o)
	if err == nil {
		s.listener, err = ring.Listen(nic, o.Name, ringOptions(o.Depth, o.Page))
	}
	if err != nil {
		s.cancel()
		return nil, errors.Join(asError("lend memory", err), s.release())
	}
	s.running.Go(s.accept)
	s.running.Go(s.watch)
	s.running.Go(func() { s.admitReaders(nic) })
	return s, nil
}

// newServer makes a server that does not listen. It is released also if that fails.
func newServer(ctx context.Context, f fabric, lent *storage, o ServerOptions) (_ *Server, err error) {
	s := &Server{
		fabric: f, storage: lent, options: o, incarnation: draw(), sessions: map[*session]bool{},
		directory: directory{pages: map[uint64]*holding{}},
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.membership.Store(&membership{})
	s.rooms, err = newStampRooms(ctx, f, o.Page)
	return s, err
}

// release gives back the memory that is lent.
func (s *Server) release() (err error) {
	if s.storage != nil {
		err = s.storage.close()
	}
	if s.rooms != nil {
		err = errors.Join(err, s.fabric.free(s.rooms.memory))
	}
	return err
}

// ringOptions are those of both ends, which must agree on the largest payload before the
// client knows how large pages are. Each request that comes has frame bytes of memory.
func ringOptions(depth, frame int) ring.Options {
	return ring.Options{Entries: depth, MaxPayload: MaxPage, FrameSize: frame, Reliability: via.ReliableDelivery}
}

// draw draws a number that is not zero.
func draw() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it ends the program rather than fail
	return max(1, binary.LittleEndian.Uint64(b[:]))
}

func (o *ServerOptions) check() error {
	o.Name, o.Page = cmp.Or(o.Name, DefaultName), cmp.Or(o.Page, DefaultPage)
	o.Depth, o.Timeout, o.Strangers = cmp.Or(o.Depth, DefaultDepth), cmp.Or(o.Timeout, defaultReplyTimeout), cmp.Or(o.Strangers, defaultStrangers)
	o.Span = cmp.Or(o.Span, o.Size)
	most := int64(o.Page) * protocol.MaxPages
	switch {
	case o.Page < MinPage || o.Page > MaxPage || o.Page&(o.Page-1) != 0:
		return optionError("Page", o.Page, fmt.Sprintf("powers of two from %d to %d", MinPage, MaxPage))
	case o.Size <= 0 || o.Size > most:
		return optionError("Size", o.Size, fmt.Sprintf("1 to %d", most))
	case o.Span <= 0 || o.Span > most:
		return optionError("Span", o.Span, fmt.Sprintf("1 to %d", most))
	case o.Depth < 2 || o.Depth > 1024:
		return optionError("Depth", o.Depth, "2 to 1024")
	case o.Strangers < 1:
		return optionError("Strangers", o.Strangers, "at least 1")
	case o.Timeout < 0:
		return optionError("Timeout", o.Timeout, "more than nothing")
	}
	whole := func(n int64) int64 { return (n + int64(o.Page) - 1) / int64(o.Page) * int64(o.Page) }
	o.Size, o.Span = whole(o.Size), whole(o.Span)
	return nil
}

// accept serves each client on a goroutine of its own.
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

// ServerStats are the counters of a server since it was started.
type ServerStats = protocol.Counters

// Stats returns what has been counted.
func (s *Server) Stats() ServerStats {
	c, stored := &s.counters, uint64(0)
	if s.host != nil {
		stored = s.host.stored()
	} else {
		stored = s.storage.stored()
	}
	return ServerStats{
		Fetches: c.fetches.Load(), Writes: c.writes.Load(), Refused: c.refused.Load(), BytesOut: c.out.Load(), BytesIn: c.in.Load(),
		Stored: stored, Capacity: uint64(s.options.Size), Clients: uint64(max(0, c.clients.Load())),
	}
}

// Close ends the server and its connections. What it lends from memory is gone. Closing
// again returns nil.
func (s *Server) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.cancel()
	err := s.listener.Close()
	s.running.Wait()
	return errors.Join(err, s.release())
}

// Page is the size of a page in bytes.
func (s *Server) Page() int { return s.options.Page }

// Span returns the end of the addresses, in bytes.
func (s *Server) Span() int64 { return s.options.Span }
