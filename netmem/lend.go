package netmem

import (
	"context"
	"errors"
	"fmt"

	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

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
		s.listener, err = ring.Listen(nic, o.Name, ringOptions(o.Page))
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
	c, stored := &s.counters, uint64(0)
	if s.kept != nil {
		stored = s.kept()
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
