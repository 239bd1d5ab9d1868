package engine

import (
	"encoding/binary"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
)

// How connections are set up (SPEC.md 8.3): the client repeats its request, the
// server its accept, until the other side answers or time is up.
const (
	setupEvery = 20 * time.Millisecond
	// maxRequests bounds the requests that wait for the host to accept them.
	maxRequests = 256
	// recentRequests is how many requests are remembered after their end, so
	// that a late copy is not taken for a new one.
	recentRequests = 64
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
}

// finished is a request that was accepted, rejected or withdrawn.
type finished struct {
	from     remote
	rejected bool
}

// setup is a CONNECT_REQUEST or CONNECT_ACCEPT that has not ended.
type setup struct {
	command   uint16
	accepting bool
	noMatch   bool // somebody said that nobody waits
	deadline  time.Duration
	again     time.Duration // when to repeat the frame
	to        descriptors.MAC
	body      descriptors.ConnectBody
	rights    descriptors.Access // of the client, if accepting
}

// key draws a connection key.
func (e *Engine) key() (uint32, bool) {
	var b [4]byte
	for range 8 {
		if _, err := e.random.Read(b[:]); err != nil {
			return 0, false
		}
		if k := binary.LittleEndian.Uint32(b[:]); k != 0 {
			return k, true
		}
	}
	return 0, false
}

func (d *setup) remaining(now time.Duration) uint32 {
	return uint32(max(d.deadline-now, time.Millisecond) / time.Millisecond)
}

// sendSetup sends the frame that an endpoint's set-up repeats.
func (e *Engine) sendSetup(ep *endpoint) {
	s := ep.setup
	h := descriptors.Header{Destination: s.to, Type: descriptors.FrameConnectRequest, SourceEndpoint: ep.id}
	if s.accepting {
		h.Type, h.DestinationEndpoint, h.Key = descriptors.FrameConnectAccept, ep.remote.endpoint, ep.remote.theirKey
	} else {
		s.body.TimeoutMS = s.remaining(e.now)
	}
	s.again = e.now + setupEvery
	buf := e.frame(&h, descriptors.ConnectBodySize)
	if buf == nil {
		return
	}
	*descriptors.ConnectBodyAt(buf[descriptors.HeaderSize:]) = s.body
	e.commit(&h, buf)
}

// startSetup begins to connect ep.
func (e *Engine) startSetup(ep *endpoint, s *setup) {
	ep.setup = s
	ep.state = descriptors.StateConnectPending
	e.settingUp = append(e.settingUp, ep)
	e.sendSetup(ep)
}

// body is what ep states about itself when it connects.
func (ep *endpoint) body() descriptors.ConnectBody {
	return descriptors.ConnectBody{
		Key: ep.remote.ourKey, MaxTransfer: ep.maxTransfer, Rights: ep.rights,
		Reliability: ep.reliability, Kind: descriptors.KindVI,
	}
}

// endSetup ends a set-up that has failed; the endpoint is idle again.
func (e *Engine) endSetup(ep *endpoint, result descriptors.Result) {
	s := ep.setup
	h := descriptors.Header{Destination: s.to, SourceEndpoint: ep.id, Immediate: uint32(result)}
	if s.accepting {
		h.Type, h.DestinationEndpoint, h.Key = descriptors.FrameConnectReject, ep.remote.endpoint, ep.remote.theirKey
		e.rejectAgain(ep.remote)
	} else {
		h.Type, h.Key = descriptors.FrameDisconnect, ep.remote.ourKey
	}
	if buf := e.frame(&h, 0); buf != nil {
		e.commit(&h, buf)
	}
	e.leaveSetup(ep)
	ep.state = descriptors.StateIdle
	e.unlink(ep)
	e.answer(s.command, result, 0)
}

func (e *Engine) leaveSetup(ep *endpoint) {
	ep.setup = nil
	for i := range e.settingUp {
		if e.settingUp[i] == ep {
			e.settingUp = append(e.settingUp[:i], e.settingUp[i+1:]...)
			return
		}
	}
}

// establish makes ep connected and ends the command that asked for it.
func (e *Engine) establish(ep *endpoint, peer *descriptors.ConnectBody) {
	s := ep.setup
	e.leaveSetup(ep)
	ep.state = descriptors.StateConnected
	ep.epitaph = epitaph{}
	ep.outline = descriptors.Header{
		Destination: ep.remote.mac, DestinationEndpoint: ep.remote.endpoint, SourceEndpoint: ep.id, Key: ep.remote.theirKey,
	}
	e.sign(&ep.outline)
	if ep.reliability == descriptors.Unreliable {
		ep.unrel = &unreliable{}
	} else {
		ep.rel = e.newReliable(ep)
		e.refresh(ep)
	}
	answerWith(e, s.command, descriptors.ConnectedReply{
		RemoteEndpoint: ep.remote.endpoint, MaxTransfer: peer.MaxTransfer, Reliability: peer.Reliability,
		RemoteMAC: ep.remote.mac, RemoteRights: peer.Rights,
	})
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
	if e.known(from) {
		return true
	}
	e.look() // the client's time begins now
	for i := range e.waiters {
		w := e.waiters[i]
		if w.local.Len != body.Remote.Len || w.local.Data != body.Remote.Data {
			continue
		}
		if len(e.requests) >= maxRequests {
			return false
		}
		e.waiters = append(e.waiters[:i], e.waiters[i+1:]...)
		e.nextID++
		e.requests[e.nextID] = &request{id: e.nextID, from: from, body: body,
			deadline: e.now + time.Duration(body.TimeoutMS)*time.Millisecond}
		answerWith(e, w.command, descriptors.ConnectionReply{
			Connection: e.nextID, MaxTransfer: body.MaxTransfer, Reliability: body.Reliability,
			RemoteMAC: from.mac, RemoteRights: body.Rights, Remote: body.Local,
		})
		return true
	}
	e.sendReject(from, descriptors.ResultNoMatch)
	return true
}

// known says whether a request is a copy of one that has been seen, and repeats
// the answer to it if that may have been lost.
func (e *Engine) known(from remote) bool {
	for _, r := range e.requests {
		if r.from == from {
			return true
		}
	}
	for i := range e.recent {
		if f := &e.recent[i]; f.from == from {
			if f.rejected {
				e.sendReject(from, descriptors.ResultReject)
			}
			return true
		}
	}
	return false
}

// retire remembers a request that has ended.
func (e *Engine) retire(r *request, rejected bool) {
	delete(e.requests, r.id)
	e.recent[e.recentAt] = finished{r.from, rejected}
	e.recentAt = (e.recentAt + 1) % recentRequests
}

// rejectAgain has copies of a request that was accepted in vain rejected.
func (e *Engine) rejectAgain(from remote) {
	from.ourKey = 0
	for i := range e.recent {
		if f := &e.recent[i]; f.from == from {
			f.rejected = true
		}
	}
}

func (e *Engine) sendReject(to remote, why descriptors.Result) {
	h := descriptors.Header{Destination: to.mac, Type: descriptors.FrameConnectReject,
		DestinationEndpoint: to.endpoint, Key: to.theirKey, Immediate: uint32(why)}
	if buf := e.frame(&h, 0); buf != nil {
		e.commit(&h, buf)
	}
}

// withdraw takes back a request whose client no longer waits.
func (e *Engine) withdraw(h *descriptors.Header) bool {
	from := remote{mac: h.Source, endpoint: h.SourceEndpoint, theirKey: h.Key}
	for _, r := range e.requests {
		if r.from == from {
			e.retire(r, false)
			return true
		}
	}
	for _, ep := range e.settingUp {
		if ep.setup.accepting && ep.remote.mac == from.mac && ep.remote.endpoint == from.endpoint && ep.remote.theirKey == from.theirKey {
			e.endSetup(ep, descriptors.ResultTimeout)
			return true
		}
	}
	return false
}

// connecting finds the endpoint that a server's answer is for.
func (e *Engine) connecting(h *descriptors.Header) *endpoint {
	ep := e.endpoint(h.DestinationEndpoint)
	if ep == nil || h.Key == 0 || h.Key != ep.remote.ourKey {
		return nil
	}
	return ep
}

// onConnectAccept completes a client's connection.
func (e *Engine) onConnectAccept(h *descriptors.Header, payload []byte) bool {
	on := descriptors.ConnectBodyAt(payload)
	if on == nil {
		return false
	}
	body := *on
	ep := e.connecting(h)
	if ep == nil {
		e.answerStranger(e.endpoint(h.DestinationEndpoint), h)
		return false
	}
	if ep.state == descriptors.StateConnected && ep.remote.mac == h.Source &&
		ep.remote.endpoint == h.SourceEndpoint && ep.remote.theirKey == body.Key {
		e.confirm(ep) // our confirmation was lost
		return true
	}
	if ep.setup == nil || ep.setup.accepting || body.Key == 0 || h.SourceEndpoint == 0 ||
		body.Reliability != ep.reliability || body.MaxTransfer != ep.maxTransfer || body.Kind != descriptors.KindVI {
		return false
	}
	ep.remote.mac, ep.remote.endpoint, ep.remote.theirKey = h.Source, h.SourceEndpoint, body.Key
	e.establish(ep, &body)
	e.confirm(ep)
	return true
}

// confirm tells the server that its accept has arrived, with the first frame of
// the connection.
func (e *Engine) confirm(ep *endpoint) {
	if ep.rel != nil {
		e.sendAck(ep, descriptors.FrameAck)
		return
	}
	if buf := e.reserve(0); buf != nil {
		h := descriptors.HeaderAt(buf)
		*h = ep.outline
		h.Type = descriptors.FrameAck
		e.launch(buf)
	}
}

// confirmed completes a server's connection: a frame of it has come.
func (e *Engine) confirmed(ep *endpoint) {
	body := ep.setup.body // equal to the client's in all but its rights
	body.Rights = ep.setup.rights
	e.establish(ep, &body)
	if ep.rel != nil {
		e.owe(ep, true) // it carries the first credit
	}
}

// onConnectReject ends a client's attempt.
func (e *Engine) onConnectReject(h *descriptors.Header) bool {
	ep := e.connecting(h)
	if ep == nil || ep.setup == nil || ep.setup.accepting {
		return false
	}
	why := descriptors.Result(h.Immediate)
	if why == descriptors.ResultNoMatch && ep.setup.to == descriptors.Broadcast {
		// Somebody else may be meant.
		ep.setup.noMatch = true
		return true
	}
	if why != descriptors.ResultNoMatch {
		why = descriptors.ResultReject
	}
	e.endSetup(ep, why)
	return true
}

// tickSetup looks at all that is being set up.
func (e *Engine) tickSetup() {
	for i := 0; i < len(e.waiters); i++ {
		if w := e.waiters[i]; e.now >= w.deadline {
			e.waiters = append(e.waiters[:i], e.waiters[i+1:]...)
			i--
			e.answer(w.command, descriptors.ResultTimeout, 0)
		}
	}
	for _, r := range e.requests {
		if e.now >= r.deadline {
			e.retire(r, false)
		}
	}
	for i := 0; i < len(e.settingUp); i++ {
		ep := e.settingUp[i]
		switch s := ep.setup; {
		case e.now >= s.deadline:
			why := descriptors.ResultTimeout
			if s.noMatch {
				why = descriptors.ResultNoMatch
			}
			e.endSetup(ep, why)
			i--
		case e.now >= s.again:
			e.sendSetup(ep)
		}
	}
}
