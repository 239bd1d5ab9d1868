package core

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
	Accepting bool
	noMatch   bool // a server said that none waits
	deadline  time.Duration
	began     time.Duration // by clock.present
	sent      time.Duration // when the frame was sent last
	repeatAt  time.Duration // when to repeat it
	to        datasheet.MAC
	body      datasheet.ConnectBody
	// wire is the number of the wire if both sides agree that it loses nothing.
	wire uint32
	path
}

// setups sets up connections.
type setups struct {
	*Core
	random   io.Reader
	UnderWay []*Endpoint
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

func (c *setups) Accept(id uint16, b *datasheet.ConnectAcceptBody) Refusal {
	r, why := c.Requests.find(b.Connection)
	ep := c.Subject(b.Endpoint)
	switch {
	case r == nil:
		return Refusal{why, Field(b, &b.Connection)}
	case ep == nil:
		return Refusal{datasheet.ResultInvalidParameter, Field(b, &b.Endpoint)}
	case b.TimeoutMS == 0:
		return Refusal{datasheet.ResultInvalidParameter, Field(b, &b.TimeoutMS)}
	case ep.State != datasheet.StateIdle || !ep.Connects:
		return Refusal{datasheet.ResultInvalidState, Field(b, &b.Endpoint)}
	case ep.KindID != r.body.Kind:
		return Refusal{datasheet.ResultInvalidParameter, Field(b, &b.Endpoint)}
	case ep.Reliability != r.body.Reliability:
		return Refusal{datasheet.ResultInvalidReliability, Field(b, &b.Endpoint)}
	case ep.MaxTransfer != r.body.MaxTransfer:
		return Refusal{datasheet.ResultInvalidMTU, Field(b, &b.Endpoint)}
	}
	s := &setup{command: id, Accepting: true, to: r.from.MAC, path: path{mtu: r.mtu, came: r.longest}}
	if mayAgree(ep) && r.body.Wire == c.offered(r.from.MAC) {
		s.wire = r.body.Wire
	}
	s.body.Remote, s.body.Local = r.body.Local, r.body.Remote
	if !c.start(ep, s, r.from, b.TimeoutMS) {
		return Refusal{datasheet.ResultResource, 0}
	}
	c.Requests.answered(r, requestAccepted)
	r.by, ep.Request = ep, r
	return Refusal{}
}

func (c *setups) Reject(b *datasheet.ConnectRejectBody) Refusal {
	r, why := c.Requests.find(b.Connection)
	if r == nil {
		return Refusal{why, Field(b, &b.Connection)}
	}
	c.Requests.dismiss(r, requestRejected)
	c.sendReject(r.from, datasheet.ResultReject)
	return Refusal{}
}

func (c *setups) Request(id uint16, b *datasheet.ConnectRequestBody) Refusal {
	ep := c.Subject(b.Endpoint)
	switch {
	case ep == nil:
		return Refusal{datasheet.ResultInvalidParameter, Field(b, &b.Endpoint)}
	case b.TimeoutMS == 0:
		return Refusal{datasheet.ResultInvalidParameter, Field(b, &b.TimeoutMS)}
	case b.RemoteMAC.IsMulticast() && b.RemoteMAC != datasheet.Broadcast:
		return Refusal{datasheet.ResultInvalidParameter, Field(b, &b.RemoteMAC)}
	case !sound(&b.Remote):
		return Refusal{datasheet.ResultInvalidParameter, Field(b, &b.Remote)}
	case !sound(&b.Local):
		return Refusal{datasheet.ResultInvalidParameter, Field(b, &b.Local)}
	case ep.State != datasheet.StateIdle || !ep.Connects:
		return Refusal{datasheet.ResultInvalidState, Field(b, &b.Endpoint)}
	}
	s := &setup{command: id, to: b.RemoteMAC, body: datasheet.ConnectBody{Remote: b.Remote, Local: b.Local}}
	if !c.start(ep, s, Remote{}, b.TimeoutMS) {
		return Refusal{datasheet.ResultResource, 0}
	}
	return Refusal{}
}

// send sends the frame that an endpoint's set-up repeats.
func (c *setups) send(ep *Endpoint) {
	s := ep.Setup
	if !s.Accepting && c.soon(s.to) {
		s.repeatAt = c.Now + TickEvery
		return
	}
	h := datasheet.Header{Destination: s.to, Type: datasheet.FrameConnectRequest, SourceEndpoint: ep.ID}
	s.body.Wire = 0
	switch {
	case !s.Accepting && mayAgree(ep):
		s.body.Wire = c.offered(s.to)
	case s.Accepting && s.wire == c.Wire(s.to):
		s.body.Wire = s.wire
	}
	longest := setupRarely
	if s.Accepting {
		h.Type, h.DestinationEndpoint, h.Key = datasheet.FrameConnectAccept, ep.Remote.Endpoint, ep.Remote.TheirKey
		// It is the NIC of a client that answers an accept: this is repeated often
		// enough to tell a client that has died from a bad wire.
		longest = c.Timing.Dead / DeadProbes
	} else {
		s.body.TimeoutMS = uint32(max(s.deadline-c.Now, time.Millisecond) / time.Millisecond)
	}
	c.probePath(s, &h)
	if s.server != (Remote{}) {
		longest = setupEvery // the server is there
	}
	s.sent, s.repeatAt = c.Now, c.Now+min(max((c.Present()-s.began)/4, setupEvery), longest)
	c.Tx.send(&h, &s.body)
}

// soon reports whether a wire to a station that loses nothing is being set up: a connection is better
// set up after it.
func (c *setups) soon(station datasheet.MAC) bool {
	if c.Peers == nil {
		return false
	}
	_, soon := c.Peers.Peer(station)
	return soon
}

// start begins to connect ep. to may still be incomplete. If no key is free it returns false and changes nothing.
func (c *setups) start(ep *Endpoint, s *setup, to Remote, timeoutMS uint32) bool {
	var ok bool
	if to.OurKey, ok = c.key(); !ok {
		return false
	}
	s.body.Key, s.body.MaxTransfer, s.body.Rights, s.body.Reliability = to.OurKey, ep.MaxTransfer, ep.Rights, ep.Reliability
	s.body.Kind = ep.KindID
	if ep.Options&datasheet.EndpointBreaks != 0 {
		s.body.Options = datasheet.ConnectBreaks
	}
	s.began, s.deadline = c.Present(), c.Now+time.Duration(timeoutMS)*time.Millisecond
	ep.Remote, ep.Setup, ep.State = to, s, datasheet.StateConnectPending
	c.UnderWay = append(c.UnderWay, ep)
	c.send(ep)
	return true
}

// End ends a set-up that has failed; the endpoint is idle again.
func (c *setups) End(ep *Endpoint, result datasheet.Result) {
	s := ep.Setup
	h := datasheet.Header{Destination: s.to, SourceEndpoint: ep.ID, Immediate: uint32(result)}
	if s.Accepting {
		h.Type, h.DestinationEndpoint, h.Key = datasheet.FrameConnectReject, ep.Remote.Endpoint, ep.Remote.TheirKey
		ep.Request.state = requestFailed
	} else {
		h.Type, h.Key = datasheet.FrameDisconnect, ep.Remote.OurKey
	}
	c.Tx.send(&h, nil)
	c.leave(ep)
	ep.State = datasheet.StateIdle
	c.Conns.unlink(ep)
	c.Answer(s.command, Refusal{result, 0})
}

func (c *setups) leave(ep *Endpoint) {
	ep.Setup = nil
	c.UnderWay = slices.DeleteFunc(c.UnderWay, func(other *Endpoint) bool { return other == ep })
}

// establish makes ep connected and ends the command that asked for it.
func (c *setups) establish(ep *Endpoint, peer *datasheet.ConnectBody) {
	s := ep.Setup
	c.leave(ep)
	ep.State = datasheet.StateConnected
	c.Conns.Depart(ep)
	ep.ended = ended{}
	ep.Outline = datasheet.Header{
		Destination: ep.Remote.MAC, DestinationEndpoint: ep.Remote.Endpoint, SourceEndpoint: ep.ID, Key: ep.Remote.TheirKey,
	}
	c.Tx.sign(&ep.Outline)
	ep.Allowed, ep.MaxPayload = peer.Rights, s.largest(c.mtu)-datasheet.HeaderSize
	ep.Delivery.Open(ep, peer)
	ep.Delivery.Posted(ep) // before there was a connection
	AnswerWith(&c.Reports, s.command, datasheet.ConnectedReply{
		RemoteEndpoint: ep.Remote.Endpoint, MaxTransfer: peer.MaxTransfer, Reliability: peer.Reliability,
		RemoteMAC: ep.Remote.MAC, RemoteRights: peer.Rights,
	})
}

// connecting finds the endpoint that a server's answer is for.
func (c *setups) connecting(h *datasheet.Header) *Endpoint {
	ep := c.Endpoint(h.DestinationEndpoint)
	if ep == nil || h.Key == 0 || h.Key != ep.Remote.OurKey {
		return nil
	}
	return ep
}

// OnAccept completes a client's connection.
func (c *setups) OnAccept(h *datasheet.Header, payload []byte) Verdict {
	on := datasheet.ConnectBodyAt(payload)
	if on == nil || h.Extent < datasheet.MinMTU {
		return Refused
	}
	body := *on
	ep := c.connecting(h)
	if ep == nil {
		c.Conns.AnswerUnknown(c.Endpoint(h.DestinationEndpoint), h)
		return Refused
	}
	if ep.State == datasheet.StateConnected && ep.Remote.MAC == h.Source &&
		ep.Remote.Endpoint == h.SourceEndpoint && ep.Remote.TheirKey == body.Key {
		c.Tx.SendAck(ep, datasheet.FrameAck) // the last one, which confirmed this, was lost
		return Taken
	}
	if ep.Setup == nil {
		c.Conns.AnswerUnknown(ep, h) // another server was first
		return Refused
	}
	if ep.Setup.Accepting || body.Key == 0 || h.SourceEndpoint == 0 || body.Reliability != ep.Reliability ||
		body.MaxTransfer != ep.MaxTransfer || body.Kind != ep.KindID {
		return Refused
	}
	from := Remote{h.Source, h.SourceEndpoint, body.Key, ep.Remote.OurKey}
	if enough, v := c.pathProven(ep, from, h); !enough {
		return v
	}
	ep.Remote = from
	c.establish(ep, &body)
	c.Tx.SendAck(ep, datasheet.FrameAck) // the server learns that its accept has arrived
	return Taken
}

// Confirmed completes a server's connection: a frame of it has come.
func (c *setups) Confirmed(ep *Endpoint) {
	body := ep.Request.body
	body.Wire = ep.Setup.body.Wire // as the client was told last
	c.establish(ep, &body)
}

// OnReject ends a client's attempt, or a connection of which the server has
// never heard that the client has it.
func (c *setups) OnReject(h *datasheet.Header) Verdict {
	ep := c.connecting(h)
	if ep == nil {
		return Refused
	}
	if ep.Setup == nil {
		if h.SourceEndpoint != ep.Remote.Endpoint || h.Source != ep.Remote.MAC {
			return Refused
		}
		c.Conns.Fail(ep, datasheet.StatusTransportError, datasheet.ResultConnectionLost, false)
		return Taken
	}
	if ep.Setup.Accepting {
		return Refused
	}
	why := datasheet.Result(h.Immediate)
	if why == datasheet.ResultNoMatch && ep.Setup.to == datasheet.Broadcast {
		// Another station may be meant.
		ep.Setup.noMatch = true
		return Taken
	}
	if why != datasheet.ResultNoMatch {
		why = datasheet.ResultReject
	}
	c.End(ep, why)
	return Taken
}

// Tick looks at all that is being set up.
func (c *setups) Tick() {
	for i := 0; i < len(c.UnderWay); i++ {
		ep := c.UnderWay[i]
		switch s := ep.Setup; {
		case c.Now >= s.deadline:
			why := datasheet.ResultTimeout
			if s.noMatch {
				why = datasheet.ResultNoMatch
			}
			c.End(ep, why)
			i--
		case s.Accepting && c.Present()-s.began > c.Timing.Dead:
			c.End(ep, datasheet.ResultConnectionLost)
			i--
		case c.Now >= s.repeatAt:
			c.send(ep)
		}
	}
}

// OnRequest hands a request to a host that waits for it.
func (c *setups) OnRequest(h *datasheet.Header, payload []byte) Verdict {
	on := datasheet.ConnectBodyAt(payload)
	if on == nil || h.SourceEndpoint == 0 || h.Extent < datasheet.MinMTU {
		return Refused
	}
	body := *on
	if body.Key == 0 || body.Remote.Len > datasheet.MaxDiscriminator || body.Local.Len > datasheet.MaxDiscriminator ||
		body.Kind < datasheet.KindVI || body.Kind > datasheet.KindChannel || body.TimeoutMS == 0 {
		return Refused
	}
	from := Remote{MAC: h.Source, Endpoint: h.SourceEndpoint, TheirKey: body.Key}
	if r := c.Requests.byClient[from]; r != nil {
		r.longest = max(r.longest, frameSize(h))
		if r.by != nil && r.by.Setup != nil {
			r.by.Setup.came = r.longest
		}
		// The answer may have been lost.
		switch {
		case r.state == requestRejected || r.state == requestFailed:
			c.sendReject(r.from, datasheet.ResultReject)
		case r.by != nil && r.by.Setup != nil && c.Now-r.by.Setup.sent >= setupEvery:
			c.send(r.by)
		}
		return Taken
	}
	if c.soon(h.Source) {
		return Refused // the client will repeat it, and may say more of the wire then
	}
	c.Look() // the client's time begins now
	lost, ok := c.Requests.arrived(from, &body, h)
	if !ok {
		c.sendReject(from, datasheet.ResultNoMatch)
	}
	if lost {
		return Refused
	}
	return Taken
}

func (c *setups) sendReject(to Remote, why datasheet.Result) {
	h := datasheet.Header{Destination: to.MAC, Type: datasheet.FrameConnectReject,
		DestinationEndpoint: to.Endpoint, Key: to.TheirKey, Immediate: uint32(why)}
	c.Tx.send(&h, nil)
}

// OnWithdrawal takes back a request whose client no longer waits.
func (c *setups) OnWithdrawal(h *datasheet.Header) Verdict {
	r := c.Requests.byClient[Remote{MAC: h.Source, Endpoint: h.SourceEndpoint, TheirKey: h.Key}]
	switch {
	case r == nil:
		return Refused
	case r.state == requestOpen:
		c.Requests.dismiss(r, requestWithdrawn)
		return Taken
	case r.by != nil && r.by.Setup != nil:
		c.End(r.by, datasheet.ResultWithdrawn)
		return Taken
	}
	return Refused
}

// Abort ends the set-up that a command began. It returns false if there is none.
func (c *setups) Abort(command uint16) bool {
	for _, ep := range c.UnderWay {
		if ep.Setup.command == command {
			c.End(ep, datasheet.ResultAborted)
			return true
		}
	}
	return false
}
