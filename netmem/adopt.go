package netmem

import (
	"context"

	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// membership has all that a server knows of its pool.
type membership struct {
	protocol.Record
	since   uint64 // the epoch in which it was let in
	joining bool
}

// adopt makes a record the server's, if it is the first or a newer one of the same pool. A server that is let in
// anew has nothing from then on.
func (s *Server) adopt(request *protocol.Request, r *protocol.Reply) protocol.Result {
	to := &membership{}
	to.Record, to.since, to.joining = request.Record()
	if to.Pool == 0 || to.Check() != nil {
		return protocol.BadRequest
	}
	s.adopting.Lock()
	defer s.adopting.Unlock()
	switch now := s.membership.Load(); {
	case now.Pool == 0:
		s.storage.adopt(to, false)
	case to.Pool != now.Pool || to.Members != now.Members:
		r.Version = now.Pool
		return protocol.OtherPool
	case to.Epoch == now.Epoch:
		return protocol.OK
	case to.Epoch < now.Epoch:
		r.Version = now.Epoch
		return protocol.OtherEpoch
	default:
		s.storage.adopt(to, to.since != now.since)
	}
	s.membership.Store(to)
	return protocol.OK
}

// admit says whether a request of a client may be carried out: not if the client knows another epoch of the pool, nor
// if it reads from a server that joins. A server of no pool takes all.
func (m *membership) admit(request *protocol.Request, r *protocol.Reply, reads bool) bool {
	switch {
	case m.Pool == 0:
	case request.Epoch != m.Epoch:
		r.Result, r.Version = protocol.OtherEpoch, m.Epoch
	case reads && m.joining:
		r.Result = protocol.NotMember
	}
	return r.Result == protocol.OK
}

// stamps lends the stamps of a run of pages.
func (x *session) stamps(q replier, request *protocol.Request, r *protocol.Reply) *loan {
	s := x.server
	pages, n := uint64(s.options.Span)/uint64(s.options.Page), uint64(request.Length)/protocol.StampSize
	switch {
	case !s.membership.Load().admit(request, r, false):
	case n == 0 || request.Length%protocol.StampSize != 0 || int(request.Length) > min(q.Room(), s.options.Page):
		r.Result = protocol.BadLength
	case request.Page >= pages || n > pages-request.Page:
		r.Result = protocol.OutsideExport
	case x.lent.Load() >= mostLent:
		r.Result = protocol.Busy
	default:
		room, ok := s.rooms.take()
		if !ok {
			r.Result = protocol.Busy
			break
		}
		run, at := make([]protocol.Stamp, n), int(room)*s.options.Page
		s.storage.stampsOf(request.Page, run)
		for i, p := range run {
			p.Encode(s.rooms.memory.Bytes()[at+i*protocol.StampSize:])
		}
		return lend(s.rooms, room, ring.Frame{Memory: s.rooms.memory, Offset: at, Length: int(request.Length)})
	}
	return nil
}

// stampFrames is for how many clients at a time a server has room for stamps, and a host for pages.
const stampFrames = 8

// stampRooms are frames for the stamps of runs of pages, and for the pages that a host gives.
type stampRooms struct {
	memory *via.Memory
	free   chan uint32
}

func newStampRooms(ctx context.Context, f fabric, page int) (*stampRooms, error) {
	m, err := f.alloc(ctx, stampFrames*page, via.MemoryAttributes{})
	if err != nil {
		return nil, err
	}
	s := &stampRooms{memory: m, free: make(chan uint32, stampFrames)}
	for i := range uint32(stampFrames) {
		s.free <- i
	}
	return s, nil
}

// take takes a free room, if there is one.
func (s *stampRooms) take() (uint32, bool) {
	select {
	case room := <-s.free:
		return room, true
	default:
		return 0, false
	}
}

func (s *stampRooms) returned(room uint32) { s.free <- room }
