package netmem

import (
	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
)

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
