package engine

import (
	"encoding/binary"
	"io"
	"slices"
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// These are the pauses while a connection is set up (SPEC.md 8.3): the client repeats its request, the
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
	noMatch   bool // a server said that none waits
	deadline  time.Duration
	began     time.Duration // by clock.present
	sent      time.Duration // when the frame was sent last
	again     time.Duration // when to repeat it
	to        datasheet.MAC
	body      datasheet.ConnectBody
	// wire is the number of the wire if both sides agree that it loses nothing.
	wire uint32
	path
}

// setups sets up connections.
type setups struct {
	*core
	random   io.Reader
	tx       *transmitter
	conns    *connections
	underWay []*endpoint
}

// key draws a connection key.
func (c *setups) key() (uint32, bool) {
	var b [4]byte
	for range 8 {
		if _, err := c.random.Read(b[:]); err != nil {
			return 0, false
		}
		if k := binary.LittleEndian.Uint32(b[:]); k != 0 {
			return k, true
		}
	}
	return 0, false
}

func (c *setups) accept(id uint16, b *datasheet.ConnectAcceptBody) refusal {
	r, why := c.requests.find(b.Connection)
	ep := c.subject(b.Endpoint)
	switch {
	case r == nil:
		return refusal{why, fieldAcceptConnection}
	case ep == nil:
		return refusal{datasheet.ResultInvalidParameter, fieldAcceptEndpoint}
	case b.TimeoutMS == 0:
		return refusal{datasheet.ResultInvalidParameter, fieldAcceptTimeout}
	case ep.state != datasheet.StateIdle || !ep.connects:
		return refusal{datasheet.ResultInvalidState, fieldAcceptEndpoint}
	case ep.kindID != r.body.Kind:
		return refusal{datasheet.ResultInvalidParameter, fieldAcceptEndpoint}
	case ep.reliability != r.body.Reliability:
		return refusal{datasheet.ResultInvalidReliability, fieldAcceptEndpoint}
	case ep.maxTransfer != r.body.MaxTransfer:
		return refusal{datasheet.ResultInvalidMTU, fieldAcceptEndpoint}
	}
	s := &setup{command: id, accepting: true, to: r.from.mac, path: path{mtu: r.mtu, came: r.longest}}
	if mayAgree(ep) && r.body.Wire == c.offered(r.from.mac) {
		s.wire = r.body.Wire
	}
	s.body.Remote, s.body.Local = r.body.Local, r.body.Remote
	if !c.start(ep, s, r.from, b.TimeoutMS) {
		return refusal{datasheet.ResultResource, 0}
	}
	c.requests.answered(r, requestAccepted)
	r.by, ep.request = ep, r
	return refusal{}
}

func (c *setups) reject(b *datasheet.ConnectRejectBody) refusal {
	r, why := c.requests.find(b.Connection)
	if r == nil {
		return refusal{why, fieldAcceptConnection}
	}
	c.requests.dismiss(r, requestRejected)
	c.sendReject(r.from, datasheet.ResultReject)
	return refusal{}
}

func (c *setups) request(id uint16, b *datasheet.ConnectRequestBody) refusal {
	ep := c.subject(b.Endpoint)
	switch {
	case ep == nil:
		return refusal{datasheet.ResultInvalidParameter, fieldEndpoint}
	case b.TimeoutMS == 0:
		return refusal{datasheet.ResultInvalidParameter, fieldRequestTimeout}
	case b.RemoteMAC.IsMulticast() && b.RemoteMAC != datasheet.Broadcast:
		return refusal{datasheet.ResultInvalidParameter, fieldRequestMAC}
	case !sound(&b.Remote):
		return refusal{datasheet.ResultInvalidParameter, fieldRequestRemote}
	case !sound(&b.Local):
		return refusal{datasheet.ResultInvalidParameter, fieldRequestLocal}
	case ep.state != datasheet.StateIdle || !ep.connects:
		return refusal{datasheet.ResultInvalidState, fieldEndpoint}
	}
	s := &setup{command: id, to: b.RemoteMAC, body: datasheet.ConnectBody{Remote: b.Remote, Local: b.Local}}
	if !c.start(ep, s, remote{}, b.TimeoutMS) {
		return refusal{datasheet.ResultResource, 0}
	}
	return refusal{}
}

// send sends the frame that an endpoint's set-up repeats.
func (c *setups) send(ep *endpoint) {
	s := ep.setup
	if !s.accepting && c.soon(s.to) {
		s.again = c.now + tickEvery
		return
	}
	h := datasheet.Header{Destination: s.to, Type: datasheet.FrameConnectRequest, SourceEndpoint: ep.id}
	s.body.Wire = 0
	switch {
	case !s.accepting && mayAgree(ep):
		s.body.Wire = c.offered(s.to)
	case s.accepting && s.wire == c.wire(s.to):
		s.body.Wire = s.wire
	}
	longest := setupRarely
	if s.accepting {
		h.Type, h.DestinationEndpoint, h.Key = datasheet.FrameConnectAccept, ep.remote.endpoint, ep.remote.theirKey
		// It is the NIC of a client that answers an accept: this is repeated often
		// enough to tell a client that has died from a bad wire.
		longest = c.timing.Dead / deadProbes
	} else {
		s.body.TimeoutMS = uint32(max(s.deadline-c.now, time.Millisecond) / time.Millisecond)
	}
	c.probePath(s, &h)
	if s.server != (remote{}) {
		longest = setupEvery // the server is there
	}
	s.sent, s.again = c.now, c.now+min(max((c.present()-s.began)/4, setupEvery), longest)
	c.tx.send(&h, &s.body)
}

// soon reports whether a wire to a station that loses nothing is being set up: a connection is better
// set up after it.
func (c *setups) soon(station datasheet.MAC) bool {
	if c.peers == nil {
		return false
	}
	_, soon := c.peers.Peer(station)
	return soon
}

// start begins to connect ep, to whom it is as far as that is known. It returns false, and
// nothing has happened, if there is no key to be had.
func (c *setups) start(ep *endpoint, s *setup, to remote, timeoutMS uint32) bool {
	var ok bool
	if to.ourKey, ok = c.key(); !ok {
		return false
	}
	s.body.Key, s.body.MaxTransfer, s.body.Rights, s.body.Reliability = to.ourKey, ep.maxTransfer, ep.rights, ep.reliability
	s.body.Kind, s.body.Options = ep.kindID, datasheet.ConnectProbes|datasheet.ConnectCounts
	if ep.options&datasheet.EndpointBreaks != 0 {
		s.body.Options |= datasheet.ConnectBreaks
	}
	s.began, s.deadline = c.present(), c.now+time.Duration(timeoutMS)*time.Millisecond
	ep.remote, ep.setup, ep.state = to, s, datasheet.StateConnectPending
	c.underWay = append(c.underWay, ep)
	c.send(ep)
	return true
}

// end ends a set-up that has failed; the endpoint is idle again.
func (c *setups) end(ep *endpoint, result datasheet.Result) {
	s := ep.setup
	h := datasheet.Header{Destination: s.to, SourceEndpoint: ep.id, Immediate: uint32(result)}
	if s.accepting {
		h.Type, h.DestinationEndpoint, h.Key = datasheet.FrameConnectReject, ep.remote.endpoint, ep.remote.theirKey
		ep.request.state = requestFailed
	} else {
		h.Type, h.Key = datasheet.FrameDisconnect, ep.remote.ourKey
	}
	c.tx.send(&h, nil)
	c.leave(ep)
	ep.state = datasheet.StateIdle
	c.conns.unlink(ep)
	c.answer(s.command, refusal{result, 0})
}

func (c *setups) leave(ep *endpoint) {
	ep.setup = nil
	c.underWay = slices.DeleteFunc(c.underWay, func(other *endpoint) bool { return other == ep })
}

// establish makes ep connected and ends the command that asked for it.
func (c *setups) establish(ep *endpoint, peer *datasheet.ConnectBody) {
	s := ep.setup
	c.leave(ep)
	ep.state = datasheet.StateConnected
	c.conns.depart(ep)
	ep.ended = ended{}
	ep.outline = datasheet.Header{
		Destination: ep.remote.mac, DestinationEndpoint: ep.remote.endpoint, SourceEndpoint: ep.id, Key: ep.remote.theirKey,
	}
	c.tx.sign(&ep.outline)
	ep.allowed, ep.maxPayload = peer.Rights, s.largest(c.mtu)-datasheet.HeaderSize
	ep.delivery.open(ep, peer)
	ep.delivery.posted(ep) // before there was a connection
	answerWith(&c.reports, s.command, datasheet.ConnectedReply{
		RemoteEndpoint: ep.remote.endpoint, MaxTransfer: peer.MaxTransfer, Reliability: peer.Reliability,
		RemoteMAC: ep.remote.mac, RemoteRights: peer.Rights,
	})
}

// connecting finds the endpoint that a server's answer is for.
func (c *setups) connecting(h *datasheet.Header) *endpoint {
	ep := c.endpoint(h.DestinationEndpoint)
	if ep == nil || h.Key == 0 || h.Key != ep.remote.ourKey {
		return nil
	}
	return ep
}

// onAccept completes a client's connection.
func (c *setups) onAccept(h *datasheet.Header, payload []byte) verdict {
	on := datasheet.ConnectBodyAt(payload)
	if on == nil || !soundMTU(h) {
		return refused
	}
	body := *on
	ep := c.connecting(h)
	if ep == nil {
		c.conns.answerUnknown(c.endpoint(h.DestinationEndpoint), h)
		return refused
	}
	if ep.state == datasheet.StateConnected && ep.remote.mac == h.Source &&
		ep.remote.endpoint == h.SourceEndpoint && ep.remote.theirKey == body.Key {
		c.tx.sendAck(ep, datasheet.FrameAck) // the last one, which confirmed this, was lost
		return taken
	}
	if ep.setup == nil {
		c.conns.answerUnknown(ep, h) // another server was first
		return refused
	}
	if ep.setup.accepting || body.Key == 0 || h.SourceEndpoint == 0 || body.Reliability != ep.reliability ||
		body.MaxTransfer != ep.maxTransfer || body.Kind != ep.kindID {
		return refused
	}
	from := remote{h.Source, h.SourceEndpoint, body.Key, ep.remote.ourKey}
	if enough, v := c.pathProven(ep, from, h); !enough {
		return v
	}
	ep.remote = from
	c.establish(ep, &body)
	c.tx.sendAck(ep, datasheet.FrameAck) // the server learns that its accept has arrived
	return taken
}

// confirmed completes a server's connection: a frame of it has come.
func (c *setups) confirmed(ep *endpoint) {
	body := ep.request.body
	body.Wire = ep.setup.body.Wire // as the client was told last
	c.establish(ep, &body)
}

// onReject ends a client's attempt, or a connection of which the server has
// never heard that the client has it.
func (c *setups) onReject(h *datasheet.Header) verdict {
	ep := c.connecting(h)
	if ep == nil {
		return refused
	}
	if ep.setup == nil {
		if h.SourceEndpoint != ep.remote.endpoint || h.Source != ep.remote.mac {
			return refused
		}
		c.conns.fail(ep, datasheet.StatusTransportError, datasheet.ResultConnectionLost, false)
		return taken
	}
	if ep.setup.accepting {
		return refused
	}
	why := datasheet.Result(h.Immediate)
	if why == datasheet.ResultNoMatch && ep.setup.to == datasheet.Broadcast {
		// Somebody else may be meant.
		ep.setup.noMatch = true
		return taken
	}
	if why != datasheet.ResultNoMatch {
		why = datasheet.ResultReject
	}
	c.end(ep, why)
	return taken
}

// tick looks at all that is being set up.
func (c *setups) tick() {
	for i := 0; i < len(c.underWay); i++ {
		ep := c.underWay[i]
		switch s := ep.setup; {
		case c.now >= s.deadline:
			why := datasheet.ResultTimeout
			if s.noMatch {
				why = datasheet.ResultNoMatch
			}
			c.end(ep, why)
			i--
		case s.accepting && c.present()-s.began > c.timing.Dead:
			c.end(ep, datasheet.ResultConnectionLost)
			i--
		case c.now >= s.again:
			c.send(ep)
		}
	}
}

// onRequest hands a request to a host that waits for it.
func (c *setups) onRequest(h *datasheet.Header, payload []byte) verdict {
	on := datasheet.ConnectBodyAt(payload)
	if on == nil || h.SourceEndpoint == 0 || !soundMTU(h) {
		return refused
	}
	body := *on
	if body.Key == 0 || body.Remote.Len > datasheet.MaxDiscriminator || body.Local.Len > datasheet.MaxDiscriminator ||
		body.Kind < datasheet.KindVI || body.Kind > datasheet.KindChannel || body.TimeoutMS == 0 {
		return refused
	}
	from := remote{mac: h.Source, endpoint: h.SourceEndpoint, theirKey: body.Key}
	if r := c.requests.byClient[from]; r != nil {
		r.longest = max(r.longest, frameSize(h))
		if r.by != nil && r.by.setup != nil {
			r.by.setup.came = r.longest
		}
		// The answer may have been lost.
		switch {
		case r.state == requestRejected || r.state == requestFailed:
			c.sendReject(r.from, datasheet.ResultReject)
		case r.by != nil && r.by.setup != nil && c.now-r.by.setup.sent >= setupEvery:
			c.send(r.by)
		}
		return taken
	}
	if c.soon(h.Source) {
		return refused // the client will repeat it, and may say more of the wire then
	}
	c.look() // the client's time begins now
	lost, ok := c.requests.arrived(from, &body, h)
	if !ok {
		c.sendReject(from, datasheet.ResultNoMatch)
	}
	if lost {
		return refused
	}
	return taken
}

func (c *setups) sendReject(to remote, why datasheet.Result) {
	h := datasheet.Header{Destination: to.mac, Type: datasheet.FrameConnectReject,
		DestinationEndpoint: to.endpoint, Key: to.theirKey, Immediate: uint32(why)}
	c.tx.send(&h, nil)
}

// onWithdrawal takes back a request whose client no longer waits.
func (c *setups) onWithdrawal(h *datasheet.Header) verdict {
	r := c.requests.byClient[remote{mac: h.Source, endpoint: h.SourceEndpoint, theirKey: h.Key}]
	switch {
	case r == nil:
		return refused
	case r.state == requestOpen:
		c.requests.dismiss(r, requestWithdrawn)
		return taken
	case r.by != nil && r.by.setup != nil:
		c.end(r.by, datasheet.ResultWithdrawn)
		return taken
	}
	return refused
}

// abort ends the set-up that a command began. It returns false if there is none.
func (c *setups) abort(command uint16) bool {
	for _, ep := range c.underWay {
		if ep.setup.command == command {
			c.end(ep, datasheet.ResultAborted)
			return true
		}
	}
	return false
}
