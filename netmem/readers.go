package netmem

import (
	"context"

	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
	"github.com/trapeze-nic/trapeze/via"
)

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
