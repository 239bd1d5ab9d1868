package engine

import (
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
)

// Execute carries out an admin command. Its reply goes to Host.AdminEntry:
// before Execute returns, or later for the commands that wait for the network.
// A command that is refused changes nothing.
func (e *Engine) Execute(cmd *descriptors.Command) {
	c := *cmd // the host may be writing
	defer e.wakeIfAsleep()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.look()
	e.execute(&c)
	e.finish()
}

func (e *Engine) execute(c *descriptors.Command) {
	why := refusal{}
	switch c.Opcode {
	case descriptors.OpNop:
	case descriptors.OpCreatePtag:
		reply, why := e.regions.createPtag()
		answerWith(&e.reports, c.ID, reply, why)
		return
	case descriptors.OpDestroyPtag:
		why = e.regions.destroyPtag(descriptors.Body[descriptors.PtagBody](c).Ptag)
	case descriptors.OpRegisterMemory:
		reply, why := e.regions.register(descriptors.Body[descriptors.RegisterMemoryBody](c))
		answerWith(&e.reports, c.ID, reply, why)
		return
	case descriptors.OpDeregisterMemory:
		why = e.deregisterMemory(descriptors.Body[descriptors.MemoryBody](c).Handle)
	case descriptors.OpCreateCQ:
		reply, why := e.createCQ(descriptors.Body[descriptors.CreateCQBody](c))
		answerWith(&e.reports, c.ID, reply, why)
		return
	case descriptors.OpDestroyCQ:
		why = e.destroyCQ(descriptors.Body[descriptors.CQBody](c).CQ)
	case descriptors.OpCreateEndpoint:
		reply, why := e.createEndpoint(descriptors.Body[descriptors.CreateEndpointBody](c))
		answerWith(&e.reports, c.ID, reply, why)
		return
	case descriptors.OpDestroyEndpoint:
		why = e.destroyEndpoint(e.subject(descriptors.Body[descriptors.EndpointBody](c).Endpoint))
	case descriptors.OpQueryEndpoint:
		reply, why := e.queryEndpoint(e.subject(descriptors.Body[descriptors.EndpointBody](c).Endpoint))
		answerWith(&e.reports, c.ID, reply, why)
		return
	case descriptors.OpConnectWait:
		if why = e.connectWait(c.ID, descriptors.Body[descriptors.ConnectWaitBody](c)); why == (refusal{}) {
			return // it is answered when a request has come
		}
	case descriptors.OpConnectAccept:
		if why = e.connectAccept(c.ID, descriptors.Body[descriptors.ConnectAcceptBody](c)); why == (refusal{}) {
			return // it is answered when the connection is there
		}
	case descriptors.OpConnectReject:
		why = e.connectReject(descriptors.Body[descriptors.ConnectRejectBody](c).Connection)
	case descriptors.OpConnectRequest:
		if why = e.connectRequest(c.ID, descriptors.Body[descriptors.ConnectRequestBody](c)); why == (refusal{}) {
			return
		}
	case descriptors.OpDisconnect:
		why = e.disconnect(e.subject(descriptors.Body[descriptors.EndpointBody](c).Endpoint))
	case descriptors.OpAbort:
		why = e.abort(descriptors.Body[descriptors.AbortBody](c).ID)
	case descriptors.OpSetPayload:
		why = e.setPayload(descriptors.Body[descriptors.SetPayloadBody](c))
	default:
		why = refusal{descriptors.ResultBadOpcode, fieldOpcode}
	}
	e.answer(c.ID, why)
}

// subject finds the endpoint that a command is about. What was posted to it before
// the command counts as posted.
func (e *Engine) subject(id uint32) *endpoint {
	ep := e.endpoint(id)
	if ep != nil {
		e.bells.takePage(ep.id)
	}
	return ep
}

func (e *Engine) connectWait(id uint16, b *descriptors.ConnectWaitBody) refusal {
	switch {
	case b.TimeoutMS == 0:
		return refusal{descriptors.ResultInvalidParameter, fieldWaitTimeout}
	case !sound(&b.Local):
		return refusal{descriptors.ResultInvalidParameter, fieldWaitLocal}
	}
	e.waiters = append(e.waiters, waiter{id, e.now + time.Duration(b.TimeoutMS)*time.Millisecond, b.Local})
	return refusal{}
}

// sound checks a discriminator: its length, and zeroes behind it.
func sound(d *descriptors.Discriminator) bool {
	if d.Len > descriptors.MaxDiscriminator {
		return false
	}
	for _, c := range d.Data[d.Len:] {
		if c != 0 {
			return false
		}
	}
	return true
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
	case ep.state != descriptors.StateIdle || ep.kind != descriptors.KindVI:
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

func (e *Engine) connectReject(connection uint32) refusal {
	r, why := e.requests.find(connection)
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
	case ep.state != descriptors.StateIdle || ep.kind != descriptors.KindVI:
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

// disconnect ends a connection, or an attempt at one, and takes an endpoint out
// of the error state. Whatever is posted is flushed.
func (e *Engine) disconnect(ep *endpoint) refusal {
	if ep == nil {
		return refusal{descriptors.ResultInvalidParameter, fieldEndpoint}
	}
	switch ep.state {
	case descriptors.StateConnectPending:
		e.endSetup(ep, descriptors.ResultAborted)
	case descriptors.StateConnected:
		reason := descriptors.ResultSuccess
		if ep.unfinished() {
			reason = descriptors.ResultAborted
		}
		e.bury(ep, reason, true)
	}
	e.enterError(ep, descriptors.StatusFlushed)
	ep.state = descriptors.StateIdle
	return refusal{}
}

// abort ends a command that waits for the network.
func (e *Engine) abort(command uint16) refusal {
	for i, w := range e.waiters {
		if w.command == command {
			e.waiters = append(e.waiters[:i], e.waiters[i+1:]...)
			e.answer(w.command, refusal{descriptors.ResultAborted, 0})
			return refusal{}
		}
	}
	for _, ep := range e.settingUp {
		if ep.setup.command == command {
			e.endSetup(ep, descriptors.ResultAborted)
			return refusal{}
		}
	}
	return refusal{descriptors.ResultInvalidParameter, fieldAbortID}
}
