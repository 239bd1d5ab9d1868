package netmem

import (
	"context"

	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// adopt makes a record the server's, if it is the first or a newer one of the same pool. A server
// that joins becomes a member only if it was told before that it has all.
func (s *Server) adopt(request *protocol.Request, r *protocol.Reply) protocol.Result {
	to := &membership{Record: request.Record(), self: int(request.Offset)}
	if to.Pool == 0 || to.Check() != nil || request.Offset >= protocol.MaxServers {
		return protocol.BadRequest
	}
	s.adopting.Lock()
	defer s.adopting.Unlock()
	now := s.membership.Load()
	switch {
	case now.Pool == 0:
	case !to.SamePool(now.Record):
		r.Version = now.Pool
		return protocol.OtherPool
	case to.Record == now.Record:
		if request.Condition != protocol.Exactly || now.State(now.self) != protocol.Joining || now.complete {
			return protocol.OK
		}
		to.complete = true
	case to.Epoch <= now.Epoch:
		r.Version = now.Epoch
		return protocol.OtherEpoch
	case to.State(to.self) == protocol.Member && !now.has(to):
		return protocol.NotMember
	}
	s.storage.adopt(to)
	s.membership.Store(to)
	return protocol.OK
}

// has says whether a server that is now has all pages that it should have as member to. In a pool
// with a name another server may have had its number since: all members know of each move.
func (m *membership) has(to *membership) bool {
	switch m.State(m.self) {
	case protocol.Member:
		return !to.Named() || m.self == to.self && to.Generation()-m.Generation() <= 1
	case protocol.Joining:
		return m.complete && m.self == to.self && to.Generation()-m.Generation() <= 1
	}
	return !to.Named()
}

// stamps lends the stamps of a run of pages.
func (x *session) stamps(q replier, request *protocol.Request, r *protocol.Reply) *loan {
	s := x.server
	pages, n := uint64(s.options.Span)/uint64(s.options.Page), uint64(request.Length)/protocol.StampSize
	switch {
	case !s.membership.Load().admit(request, r, protocol.Member, protocol.Joining):
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

// witness keeps the record of a pool for its clients.
func (x *session) witness(request *protocol.Request, r *protocol.Reply) int {
	s, to := x.server, request.Record()
	if to.Pool == 0 || to.Check() != nil {
		r.Result = protocol.BadRequest
		return protocol.ReplySize
	}
	s.mu.Lock()
	now, known := s.witnessed[to.Pool]
	room := known && to.SameMembers(now.Members) || !known && len(s.witnessed) < mostWitnessed
	if room && follows(now, to, request.Condition == protocol.IfOlder) {
		now = to
		s.witnessed[to.Pool] = to
	}
	s.mu.Unlock()
	return x.describeIn(now)
}

// mostWitnessed is for how many pools a server keeps a record.
const mostWitnessed = 1 << 12

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
