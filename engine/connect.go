package engine

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
)

// How connections are set up (SPEC.md 8.3): the client repeats its request, the
// server its accept, until the other side answers or time is up. The longer an
// answer takes, the less likely it comes: each pause is a quarter of the time that
// has passed, from setupEvery on.
const (
	setupEvery = 20 * time.Millisecond
	// setupRarely is the longest pause between two requests: a server that comes
	// late is found so much later at most.
	setupRarely = time.Second
)

// setup is a CONNECT_REQUEST or CONNECT_ACCEPT that has not ended.
type setup struct {
	command   uint16
	accepting bool
	noMatch   bool // somebody said that nobody waits
	deadline  time.Duration
	began     time.Duration // by clock.present
	sent      time.Duration // when the frame was sent last
	again     time.Duration // when to repeat it
	to        descriptors.MAC
	body      descriptors.ConnectBody
	rights    descriptors.Access         // of the client, if accepting
	options   descriptors.ConnectOptions // of the client, if accepting
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

func (e *Engine) connectAccept(id uint16, b *descriptors.ConnectAcceptBody) refusal {
	r, why := e.requests.find(b.Connection)
	ep := e.subject(b.Endpoint)
	switch {
	case r == nil:
		return refusal{why, fieldAcceptConnection}
	case ep == nil:
		return refusal{descriptors.ResultInvalidParameter, fieldAcceptEndpoint}
	case b.TimeoutMS == 0:
		return refusal{descriptors.ResultInvalidParameter, fieldAcceptTimeout}
	case ep.state != descriptors.StateIdle || !ep.kind.connects():
		return refusal{descriptors.ResultInvalidState, fieldAcceptEndpoint}
	case ep.reliability != r.body.Reliability:
		return refusal{descriptors.ResultInvalidReliability, fieldAcceptEndpoint}
	case ep.maxTransfer != r.body.MaxTransfer:
		return refusal{descriptors.ResultInvalidMTU, fieldAcceptEndpoint}
	}
	key, ok := e.key()
	if !ok {
		return refusal{descriptors.ResultResource, 0}
	}
	e.requests.answered(r, requestAccepted)
	r.by, ep.request = ep, r
	ep.remote = r.from
	ep.remote.ourKey = key
	s := &setup{command: id, accepting: true, to: r.from.mac, body: ep.body(), rights: r.body.Rights, options: r.body.Options,
		deadline: e.now + time.Duration(b.TimeoutMS)*time.Millisecond}
	s.body.Remote, s.body.Local = r.body.Local, r.body.Remote
	e.startSetup(ep, s)
	return refusal{}
}

func (e *Engine) connectReject(b *descriptors.ConnectRejectBody) refusal {
	r, why := e.requests.find(b.Connection)
	if r == nil {
		return refusal{why, fieldAcceptConnection}
	}
	e.requests.answered(r, requestRejected)
	e.requests.end(r)
	e.sendReject(r.from, descriptors.ResultReject)
	return refusal{}
}

func (e *Engine) connectRequest(id uint16, b *descriptors.ConnectRequestBody) refusal {
	ep := e.subject(b.Endpoint)
	switch {
	case ep == nil:
		return refusal{descriptors.ResultInvalidParameter, fieldEndpoint}
	case b.TimeoutMS == 0:
		return refusal{descriptors.ResultInvalidParameter, fieldRequestTimeout}
	case b.RemoteMAC.IsMulticast() && b.RemoteMAC != descriptors.Broadcast:
		return refusal{descriptors.ResultInvalidParameter, fieldRequestMAC}
	case !sound(&b.Remote):
		return refusal{descriptors.ResultInvalidParameter, fieldRequestRemote}
	case !sound(&b.Local):
		return refusal{descriptors.ResultInvalidParameter, fieldRequestLocal}
	case ep.state != descriptors.StateIdle || !ep.kind.connects():
		return refusal{descriptors.ResultInvalidState, fieldEndpoint}
	}
	key, ok := e.key()
	if !ok {
		return refusal{descriptors.ResultResource, 0}
	}
	ep.remote = remote{ourKey: key}
	s := &setup{command: id, to: b.RemoteMAC, body: ep.body(),
		deadline: e.now + time.Duration(b.TimeoutMS)*time.Millisecond}
	s.body.Remote, s.body.Local = b.Remote, b.Local
	e.startSetup(ep, s)
	return refusal{}
}

// sendSetup sends the frame that an endpoint's set-up repeats.
func (e *Engine) sendSetup(ep *endpoint) {
	s := ep.setup
	h := descriptors.Header{Destination: s.to, Type: descriptors.FrameConnectRequest, SourceEndpoint: ep.id}
	longest := setupRarely
	if s.accepting {
		h.Type, h.DestinationEndpoint, h.Key = descriptors.FrameConnectAccept, ep.remote.endpoint, ep.remote.theirKey
		// It is the NIC of a client that answers an accept: this is repeated often
		// enough to tell a client that has died from a bad wire.
		longest = e.timing.Dead / silentProbes
	} else {
		s.body.TimeoutMS = uint32(max(s.deadline-e.now, time.Millisecond) / time.Millisecond)
	}
	s.sent, s.again = e.now, e.now+min(max((e.present()-s.began)/4, setupEvery), longest)
	e.send(&h, &s.body)
}

// startSetup begins to connect ep.
func (e *Engine) startSetup(ep *endpoint, s *setup) {
	s.began = e.present()
	ep.setup = s
	ep.state = descriptors.StateConnectPending
	e.settingUp = append(e.settingUp, ep)
	e.sendSetup(ep)
}

// body is what ep states about itself when it connects.
func (ep *endpoint) body() descriptors.ConnectBody {
	return descriptors.ConnectBody{
		Key: ep.remote.ourKey, MaxTransfer: ep.maxTransfer, Rights: ep.rights,
		Reliability: ep.reliability, Kind: descriptors.KindVI, Options: descriptors.ConnectProbes,
	}
}

// endSetup ends a set-up that has failed; the endpoint is idle again.
func (e *Engine) endSetup(ep *endpoint, result descriptors.Result) {
	s := ep.setup
	h := descriptors.Header{Destination: s.to, SourceEndpoint: ep.id, Immediate: uint32(result)}
	if s.accepting {
		h.Type, h.DestinationEndpoint, h.Key = descriptors.FrameConnectReject, ep.remote.endpoint, ep.remote.theirKey
		ep.request.state = requestFailed
	} else {
		h.Type, h.Key = descriptors.FrameDisconnect, ep.remote.ourKey
	}
	e.send(&h, nil)
	e.leaveSetup(ep)
	ep.state = descriptors.StateIdle
	e.unlink(ep)
	e.answer(s.command, refusal{result, 0})
}

func (e *Engine) leaveSetup(ep *endpoint) {
	ep.setup = nil
	e.settingUp = slices.DeleteFunc(e.settingUp, func(other *endpoint) bool { return other == ep })
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
	ep.kind.open(e, ep, peer)
	answerWith(&e.reports, s.command, descriptors.ConnectedReply{
		RemoteEndpoint: ep.remote.endpoint, MaxTransfer: peer.MaxTransfer, Reliability: peer.Reliability,
		RemoteMAC: ep.remote.mac, RemoteRights: peer.Rights,
	})
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
func (e *Engine) onConnectAccept(h *descriptors.Header, payload []byte) verdict {
	on := descriptors.ConnectBodyAt(payload)
	if on == nil {
		return refused
	}
	body := *on
	ep := e.connecting(h)
	if ep == nil {
		e.answerStranger(e.endpoint(h.DestinationEndpoint), h)
		return refused
	}
	if ep.state == descriptors.StateConnected && ep.remote.mac == h.Source &&
		ep.remote.endpoint == h.SourceEndpoint && ep.remote.theirKey == body.Key {
		e.sendAck(ep, descriptors.FrameAck) // the last one, which confirmed this, was lost
		return taken
	}
	if ep.setup == nil {
		e.answerStranger(ep, h) // another server was first
		return refused
	}
	if ep.setup.accepting || body.Key == 0 || h.SourceEndpoint == 0 || body.Reliability != ep.reliability ||
		body.MaxTransfer != ep.maxTransfer || body.Kind != descriptors.KindVI {
		return refused
	}
	ep.remote.mac, ep.remote.endpoint, ep.remote.theirKey = h.Source, h.SourceEndpoint, body.Key
	e.establish(ep, &body)
	e.sendAck(ep, descriptors.FrameAck) // the server learns that its accept has arrived
	return taken
}

// confirmed completes a server's connection: a frame of it has come.
func (e *Engine) confirmed(ep *endpoint) {
	body := ep.setup.body // equal to the client's in all but its rights and options
	body.Rights, body.Options = ep.setup.rights, ep.setup.options
	e.establish(ep, &body)
	if ep.rel != nil {
		e.owe(ep, true) // it carries the first credit
	}
}

// onConnectReject ends a client's attempt, or a connection of which the server has
// never heard that the client has it.
func (e *Engine) onConnectReject(h *descriptors.Header) verdict {
	ep := e.connecting(h)
	if ep == nil {
		return refused
	}
	if ep.setup == nil {
		if h.SourceEndpoint != ep.remote.endpoint || h.Source != ep.remote.mac {
			return refused
		}
		e.fail(ep, descriptors.StatusTransportError, descriptors.ResultConnectionLost, false)
		return taken
	}
	if ep.setup.accepting {
		return refused
	}
	why := descriptors.Result(h.Immediate)
	if why == descriptors.ResultNoMatch && ep.setup.to == descriptors.Broadcast {
		// Somebody else may be meant.
		ep.setup.noMatch = true
		return taken
	}
	if why != descriptors.ResultNoMatch {
		why = descriptors.ResultReject
	}
	e.endSetup(ep, why)
	return taken
}

// tickSetup looks at all that is being set up.
func (e *Engine) tickSetup() {
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
		case s.accepting && e.present()-s.began > e.timing.Dead:
			e.endSetup(ep, descriptors.ResultConnectionLost)
			i--
		case e.now >= s.again:
			e.sendSetup(ep)
		}
	}
}
