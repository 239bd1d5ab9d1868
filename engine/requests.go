package engine

import (
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
)

const (
	// maxRequests bounds the requests that wait for the host to answer them.
	maxRequests = 256
	// rememberedRequests is how many requests are remembered after their end, so
	// that a late copy is not taken for a new one.
	rememberedRequests = 1024
)

// waiter is a CONNECT_WAIT that has not ended.
type waiter struct {
	command  uint16
	deadline time.Duration
	local    descriptors.Discriminator
}

// request is a connection request that the host was told of.
type request struct {
	id       uint32
	from     remote // ourKey is not set
	body     descriptors.ConnectBody
	deadline time.Duration
	state    requestState
	by       *endpoint // that accepts it, or is connected to its client
}

// requestState is what has become of a request.
type requestState int

const (
	requestOpen      requestState = iota // the host has not answered it
	requestAccepted                      // by an endpoint, or it was once
	requestRejected                      // by the host
	requestWithdrawn                     // the client no longer waits
	requestFailed                        // accepted in vain; copies are rejected
)

// requests are the connection requests that the device knows: those that are
// open, those whose endpoint is there, and the last that have ended.
type requests struct {
	open     []*request // oldest first
	byID     map[uint32]*request
	byClient map[remote]*request
	ended    [rememberedRequests]*request
	endedAt  int
	lastID   uint32
}

func newRequests() requests {
	return requests{byID: map[uint32]*request{}, byClient: map[remote]*request{}}
}

// add makes a request known.
func (q *requests) add(r *request) {
	q.lastID++
	r.id = q.lastID
	q.open = append(q.open, r)
	q.byID[r.id], q.byClient[r.from] = r, r
}

// answered takes a request off those that wait for the host.
func (q *requests) answered(r *request, s requestState) {
	for i := range q.open {
		if q.open[i] == r {
			q.open = append(q.open[:i], q.open[i+1:]...)
			break
		}
	}
	r.state = s
}

// end remembers a request that is of no more use, in place of the oldest one.
func (q *requests) end(r *request) {
	if old := q.ended[q.endedAt]; old != nil {
		delete(q.byID, old.id)
		delete(q.byClient, old.from)
	}
	q.ended[q.endedAt] = r
	q.endedAt = (q.endedAt + 1) % rememberedRequests
	r.by = nil
}

// find finds the request that the host names. Without one it returns why.
func (q *requests) find(id uint32) (*request, descriptors.Result) {
	r := q.byID[id]
	switch {
	case r != nil && r.state == requestOpen:
		return r, descriptors.ResultSuccess
	case r != nil && (r.state == requestAccepted || r.state == requestRejected):
		return nil, descriptors.ResultInvalidParameter // the host has answered it
	case r == nil && id-1 >= q.lastID:
		return nil, descriptors.ResultInvalidParameter // there never was one
	}
	// The client has gone, maybe so long ago that nothing else is known of it.
	return nil, descriptors.ResultWithdrawn
}

// onConnectRequest hands a request to a host that waits for it.
func (e *Engine) onConnectRequest(h *descriptors.Header, payload []byte) bool {
	on := descriptors.ConnectBodyAt(payload)
	if on == nil || h.SourceEndpoint == 0 {
		return false
	}
	body := *on
	if body.Key == 0 || body.Remote.Len > descriptors.MaxDiscriminator || body.Local.Len > descriptors.MaxDiscriminator ||
		body.Kind != descriptors.KindVI || body.TimeoutMS == 0 {
		return false
	}
	from := remote{mac: h.Source, endpoint: h.SourceEndpoint, theirKey: body.Key}
	if r := e.requests.byClient[from]; r != nil {
		e.copyOf(r)
		return true
	}
	e.look() // the client's time begins now
	for i := range e.waiters {
		w := e.waiters[i]
		if w.local.Len != body.Remote.Len || w.local.Data != body.Remote.Data {
			continue
		}
		if len(e.requests.open) >= maxRequests {
			return false
		}
		e.waiters = append(e.waiters[:i], e.waiters[i+1:]...)
		r := &request{from: from, body: body, deadline: e.now + time.Duration(body.TimeoutMS)*time.Millisecond}
		e.requests.add(r)
		answerWith(&e.reports, w.command, descriptors.ConnectionReply{
			Connection: r.id, MaxTransfer: body.MaxTransfer, Reliability: body.Reliability,
			RemoteMAC: from.mac, RemoteRights: body.Rights, Remote: body.Local,
		}, refusal{})
		return true
	}
	e.sendReject(from, descriptors.ResultNoMatch)
	return true
}

// copyOf repeats the answer to a request of which a copy has come, since it may
// have been lost.
func (e *Engine) copyOf(r *request) {
	switch {
	case r.state == requestRejected || r.state == requestFailed:
		e.sendReject(r.from, descriptors.ResultReject)
	case r.by != nil && r.by.setup != nil && e.now-r.by.setup.sent >= setupEvery:
		e.sendSetup(r.by)
	}
}

// withdrawRequest ends an open request whose client has gone.
func (e *Engine) withdrawRequest(r *request) {
	e.requests.answered(r, requestWithdrawn)
	e.requests.end(r)
}

func (e *Engine) sendReject(to remote, why descriptors.Result) {
	h := descriptors.Header{Destination: to.mac, Type: descriptors.FrameConnectReject,
		DestinationEndpoint: to.endpoint, Key: to.theirKey, Immediate: uint32(why)}
	if buf := e.frame(&h, 0); buf != nil {
		e.commit(&h, buf)
	}
}

// onWithdrawal takes back a request whose client no longer waits.
func (e *Engine) onWithdrawal(h *descriptors.Header) bool {
	r := e.requests.byClient[remote{mac: h.Source, endpoint: h.SourceEndpoint, theirKey: h.Key}]
	switch {
	case r == nil:
		return false
	case r.state == requestOpen:
		e.withdrawRequest(r)
		return true
	case r.by != nil && r.by.setup != nil:
		e.endSetup(r.by, descriptors.ResultWithdrawn)
		return true
	}
	return false
}

// tickRequests ends what nobody waits for any more.
func (e *Engine) tickRequests() {
	for i := 0; i < len(e.waiters); i++ {
		if w := e.waiters[i]; e.now >= w.deadline {
			e.waiters = append(e.waiters[:i], e.waiters[i+1:]...)
			i--
			e.answer(w.command, refusal{descriptors.ResultTimeout, 0})
		}
	}
	for i := 0; i < len(e.requests.open); i++ {
		if r := e.requests.open[i]; e.now >= r.deadline {
			e.withdrawRequest(r)
			i--
		}
	}
}
