package core

import (
	"slices"
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

const (
	// maxRequests bounds the requests that wait for the host to answer them.
	maxRequests = 256
	// rememberedRequests is the number of requests that are remembered after their end, so
	// that a late copy is not taken for a new one.
	rememberedRequests = 1024
)

// waiter is a CONNECT_WAIT that has not ended.
type waiter struct {
	command  uint16
	deadline time.Duration
	local    datasheet.Discriminator
}

// request is a connection request that the host was told of.
type request struct {
	id       uint32
	from     Remote // ourKey is not set
	body     datasheet.ConnectBody
	deadline time.Duration
	state    requestState
	by       *Endpoint // that accepts it, or is connected to its client
	mtu      uint32    // of the client
	longest  uint32    // of the client's frames with this request, in bytes
}

type requestState int

const (
	requestOpen      requestState = iota // the host has not answered it
	requestAccepted                      // by an endpoint, or it was once
	requestRejected                      // by the host
	requestWithdrawn                     // the client no longer waits
	requestFailed                        // accepted in vain; copies are rejected
)

// requests are the connection requests that the device knows: those that are
// open, those whose endpoint is there, and the last that have ended; and the commands
// that wait for one.
type requests struct {
	*Clock
	*Reports
	waiters  []waiter
	open     []*request // oldest first
	byID     map[uint32]*request
	byClient map[Remote]*request
	ended    [rememberedRequests]*request
	endedAt  int
	lastID   uint32
}

func (q *requests) clear() {
	*q = requests{Clock: q.Clock, Reports: q.Reports, byID: map[uint32]*request{}, byClient: map[Remote]*request{}}
}

// Wait has a command wait for a request.
func (q *requests) Wait(command uint16, b *datasheet.ConnectWaitBody) Refusal {
	switch {
	case b.TimeoutMS == 0:
		return Refusal{datasheet.ResultInvalidParameter, Field(b, &b.TimeoutMS)}
	case !sound(&b.Local):
		return Refusal{datasheet.ResultInvalidParameter, Field(b, &b.Local)}
	}
	q.waiters = append(q.waiters, waiter{command, q.Now + time.Duration(b.TimeoutMS)*time.Millisecond, b.Local})
	return Refusal{}
}

// sound checks a discriminator: its length, and zeroes behind it.
func sound(d *datasheet.Discriminator) bool {
	return d.Len <= datasheet.MaxDiscriminator && !slices.ContainsFunc(d.Data[d.Len:], func(c byte) bool { return c != 0 })
}

// Abort ends a command that waits, with result. It returns false if there is none.
func (q *requests) Abort(command uint16) bool {
	i := slices.IndexFunc(q.waiters, func(w waiter) bool { return w.command == command })
	if i < 0 {
		return false
	}
	q.waiters = slices.Delete(q.waiters, i, i+1)
	q.Answer(command, Refusal{datasheet.ResultAborted, 0})
	return true
}

// arrived tells the oldest command that waits for a new request of it. It returns
// false if none waits. With too many open requests the request is lost, and will be
// repeated.
func (q *requests) arrived(from Remote, body *datasheet.ConnectBody, h *datasheet.Header) (lost, ok bool) {
	i := slices.IndexFunc(q.waiters, func(w waiter) bool { return w.local.Len == body.Remote.Len && w.local.Data == body.Remote.Data })
	if i < 0 {
		return false, false
	}
	if len(q.open) >= maxRequests {
		return true, true
	}
	command := q.waiters[i].command
	q.waiters = slices.Delete(q.waiters, i, i+1)
	q.lastID++
	r := &request{id: q.lastID, from: from, body: *body, deadline: q.Now + time.Duration(body.TimeoutMS)*time.Millisecond,
		mtu: h.Extent, longest: frameSize(h)}
	q.open = append(q.open, r)
	q.byID[r.id], q.byClient[r.from] = r, r
	AnswerWith(q.Reports, command, datasheet.ConnectionReply{
		Connection: r.id, MaxTransfer: body.MaxTransfer, Reliability: body.Reliability, Kind: body.Kind,
		RemoteMAC: from.MAC, RemoteRights: body.Rights, Remote: body.Local,
	})
	return false, true
}

// answered takes a request off those that wait for the host.
func (q *requests) answered(r *request, s requestState) {
	q.open = slices.DeleteFunc(q.open, func(o *request) bool { return o == r })
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
func (q *requests) find(id uint32) (*request, datasheet.Result) {
	r := q.byID[id]
	switch {
	case r != nil && r.state == requestOpen:
		return r, datasheet.ResultSuccess
	case r != nil && (r.state == requestAccepted || r.state == requestRejected), r == nil && id-1 >= q.lastID:
		return nil, datasheet.ResultInvalidParameter // the host has answered it, or there never was one
	}
	// The client has gone, maybe so long ago that nothing else is known of it.
	return nil, datasheet.ResultWithdrawn
}

// dismiss ends an open request that no endpoint has accepted.
func (q *requests) dismiss(r *request, s requestState) {
	q.answered(r, s)
	q.end(r)
}

// Tick ends the requests that no call waits for any more.
func (q *requests) Tick() {
	q.waiters = slices.DeleteFunc(q.waiters, func(w waiter) bool {
		over := q.Now >= w.deadline
		if over {
			q.Answer(w.command, Refusal{datasheet.ResultTimeout, 0})
		}
		return over
	})
	for _, r := range slices.Clone(q.open) {
		if q.Now >= r.deadline {
			q.dismiss(r, requestWithdrawn)
		}
	}
}
