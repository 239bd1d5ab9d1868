package netmem

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
	"github.com/trapeze-nic/trapeze/ring"
)

// mostLent is the most loans of a client: one that does not take what it asked for
// keeps no more frames from being used for others.
const mostLent = spareFrames / 2

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
	size    int // of the reply in the buffer
	// cooperates: the client has used the directory, as host number host; -1 is none.
	cooperates bool
	host       int
}

// serve serves a client until it goes or the server ends.
func (s *Server) serve(r *ring.Ring) {
	ctx, end := context.WithCancel(s.ctx)
	defer end()
	x := s.enter(end)
	defer s.leave(x)
	// How a client ends is its own affair.
	_ = ring.Serve(ctx, r, func(q *ring.Request) {
		reply, payload, done := x.handle(q.Bytes, q.Payload.Bytes(), q.Room())
		_ = q.Reply(reply, payload, done) // if it cannot be sent the client has gone, which Serve notices
	})
	_ = r.Close()
}

// enter begins a session, and ends the oldest of those that never asked for a page if there are
// too many.
func (s *Server) enter(end func()) *session {
	x := &session{server: s, end: end}
	s.counters.clients.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun++
	x.number = s.begun
	s.sessions[x] = true
	oldest, strangers := x, 0
	for other := range s.sessions {
		if other.asked.Load() > 0 || other.ending {
			continue
		}
		if strangers++; other.number < oldest.number {
			oldest = other
		}
	}
	if strangers > s.options.Strangers {
		oldest.ending = true
		oldest.end() // its own goroutine closes the ring
	}
	return x
}

func (s *Server) leave(x *session) {
	s.counters.clients.Add(-1)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, x)
}

// watch ends the connections of clients that do not take what they have asked for.
func (s *Server) watch() {
	tick := time.NewTicker(s.options.Timeout)
	defer tick.Stop()
	before := map[*session]uint64{} // of those that had loans: what they had taken
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
		s.mu.Lock()
		now := map[*session]uint64{}
		for x := range s.sessions {
			if x.lent.Load() == 0 {
				continue
			}
			now[x] = x.taken.Load()
			if then, had := before[x]; had && then == now[x] {
				x.end() // its own goroutine closes the ring, which may take a while
			}
		}
		s.mu.Unlock()
		before = now
	}
}

// handle carries out a request with a payload, whose reply has room for so many bytes of payload. It returns the reply, which
// holds until the next request, its payload, and what to call when that has been sent.
func (x *session) handle(b, payload []byte, room int) (reply []byte, frame ring.Frame, done func()) {
	request, r := &x.request, &x.reply
	*r, x.size = protocol.Reply{}, protocol.ReplySize
	var l *loan
	var err error
	if *request, err = protocol.ParseRequest(b); err != nil {
		r.Result = protocol.BadRequest
	} else {
		r.Operation = request.Operation
		l = x.carryOut(room, request, r, payload)
	}
	r.Incarnation = x.server.incarnation
	if l != nil {
		r.Length = uint32(l.frame.Length)
		if r.Operation != protocol.Stamps {
			x.server.counters.fetches.Add(1)
			x.server.counters.out.Add(uint64(l.frame.Length))
		}
		l.session = x
		x.lent.Add(1)
		frame, done = l.frame, l.done
	}
	r.Encode(x.buffer[:])
	if r.Result != protocol.OK {
		x.server.counters.refused.Add(1)
		x.size = protocol.ReplySize
	}
	return x.buffer[:x.size], frame, done
}

// body makes the value to which v points follow the reply.
func (x *session) body(v any) { x.size = protocol.PutBody(x.buffer[:], v) }

// carryOut fills in the reply to a request, and returns the loan that is its payload.
func (x *session) carryOut(room int, request *protocol.Request, r *protocol.Reply, payload []byte) *loan {
	s := x.server
	if request.Operation != protocol.Describe && request.Incarnation != s.incarnation {
		r.Result = protocol.OtherIncarnation
		return nil
	}
	switch request.Operation {
	case protocol.Fetch, protocol.Write, protocol.Find, protocol.Get, protocol.Put, protocol.Ages, protocol.Direct:
		x.asked.Add(1)
	}
	switch {
	case s.guests != nil:
		return s.guests.carryOut(x, room, request, r, payload)
	case request.Operation != protocol.Adopt:
		s.adopting.RLock()
		defer s.adopting.RUnlock()
	}
	switch request.Operation {
	case protocol.Describe:
		x.describe()
	case protocol.Fetch:
		if x.mayFetch(room, request, r) {
			return s.storage.fetch(request, r)
		}
	case protocol.Write:
		x.write(request, r, payload)
	case protocol.Adopt:
		if r.Result = s.adopt(request, r); r.Result == protocol.OK {
			x.describe()
		}
	case protocol.Stamps:
		return x.stamps(room, request, r)
	case protocol.Find:
		return x.find(room, request, r)
	case protocol.Move:
		x.move(request, r)
	case protocol.Direct:
		if w := s.storage.window(); w != nil {
			x.body(w)
		} else {
			r.Result = protocol.BadOperation
		}
	case protocol.Stat:
		x.stat()
	default:
		r.Result = protocol.BadOperation
	}
	return nil
}

func (x *session) stat() {
	c := x.server.Stats()
	x.body(&c)
}

func (x *session) describe() {
	o := &x.server.options
	x.body(&protocol.Description{
		Record: x.server.membership.Load().Record, Span: uint64(o.Span), Capacity: uint64(o.Size), Page: uint32(o.Page), ReadOnly: o.ReadOnly,
	})
}

// mayFetch says whether a page may be fetched; if not, the reply says why.
func (x *session) mayFetch(room int, request *protocol.Request, r *protocol.Reply) bool {
	o := &x.server.options
	switch {
	case !x.server.membership.Load().admit(request, r, true):
	case request.Page >= uint64(o.Span)/uint64(o.Page):
		r.Result = protocol.OutsideExport
	case int(request.Length) != o.Page || o.Page > room:
		r.Result = protocol.BadLength
	case x.lent.Load() >= mostLent:
		r.Result = protocol.Busy
	}
	return r.Result == protocol.OK
}

func (x *session) write(request *protocol.Request, r *protocol.Reply, payload []byte) {
	s, o := x.server, &x.server.options
	switch {
	case !s.membership.Load().admit(request, r, false):
		return
	case request.Condition > protocol.IfOlder:
		r.Result = protocol.BadOperation
	case int(request.Length) != o.Page || len(payload) != o.Page, request.Next == 0,
		request.Condition == protocol.IfExpected && request.Next <= request.Expected:
		r.Result = protocol.BadLength
	case request.Next == math.MaxUint64:
		r.Result = protocol.VersionLimit
	case request.Page >= uint64(o.Span)/uint64(o.Page):
		r.Result = protocol.OutsideExport
	case o.ReadOnly:
		r.Result = protocol.ReadOnly
	default:
		s.storage.write(request, r, payload)
	}
	if r.Result != protocol.OK {
		return
	}
	s.counters.writes.Add(1)
	s.counters.in.Add(uint64(request.Length))
	if x.cooperates {
		s.directory.note(request.Page, r.Stamp, payload, x.host)
	}
}

// find says where a page is, or lends it.
func (x *session) find(room int, request *protocol.Request, r *protocol.Reply) (l *loan) {
	s := x.server
	if request.Offset > protocol.MaxHosts || request.Next >= 1<<protocol.MaxHosts {
		r.Result = protocol.BadRequest
		return nil
	}
	x.host, x.cooperates = int(request.Offset)-1, true
	if !x.mayFetch(room, request, r) {
		return nil
	}
	var now [1]protocol.Stamp
	s.storage.stampsOf(request.Page, now[:])
	found := s.directory.find(request.Page, now[0], x.host, uint16(request.Next))
	if found.Host >= 0 {
		r.Stamp = now[0]
	} else {
		l = s.storage.fetch(request, r)
		s.directory.note(request.Page, r.Stamp, l.frame.Bytes(), x.host)
	}
	x.body(&found)
	return l
}

// move answers a client that moves a page from one host to another.
func (x *session) move(request *protocol.Request, r *protocol.Reply) {
	stamp, from, to, err := request.Moved()
	switch {
	case err != nil:
		r.Result = protocol.BadRequest
	case x.server.membership.Load().admit(request, r, true):
		held, known := x.server.directory.move(request.Page, stamp, from, to)
		if !known {
			r.Result = protocol.NotHeld
		}
		if held {
			r.Flags = protocol.Held
		}
	}
}

// stamps lends the stamps of a run of pages.
func (x *session) stamps(room int, request *protocol.Request, r *protocol.Reply) *loan {
	s := x.server
	pages, n := uint64(s.options.Span)/uint64(s.options.Page), uint64(request.Length)/protocol.StampSize
	switch {
	case !s.membership.Load().admit(request, r, false):
	case n == 0 || request.Length%protocol.StampSize != 0 || int(request.Length) > min(room, s.options.Page):
		r.Result = protocol.BadLength
	case request.Page >= pages || n > pages-request.Page:
		r.Result = protocol.OutsideExport
	default:
		l := x.borrow(r)
		if l == nil {
			break
		}
		l.frame.Length = int(request.Length)
		run := make([]protocol.Stamp, n)
		s.storage.stampsOf(request.Page, run)
		for i, p := range run {
			p.Encode(l.frame.Bytes()[i*protocol.StampSize:])
		}
		return l
	}
	return nil
}

// borrow returns a room for the payload of a reply. If there is none now the reply says so.
func (x *session) borrow(r *protocol.Reply) *loan {
	s := x.server
	if x.lent.Load() < mostLent {
		if place, ok := s.rooms.take(); ok {
			return lend(s.rooms, place, s.rooms.frame(place, s.options.Page))
		}
	}
	r.Result = protocol.Busy
	return nil
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
