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
	switch c.Opcode {
	case descriptors.OpNop:
		e.answer(c.ID, descriptors.ResultSuccess, 0)
	case descriptors.OpCreatePtag:
		e.createPtag(c.ID)
	case descriptors.OpDestroyPtag:
		e.destroyPtag(c.ID, descriptors.Body[descriptors.PtagBody](c))
	case descriptors.OpRegisterMemory:
		e.registerMemory(c.ID, descriptors.Body[descriptors.RegisterMemoryBody](c))
	case descriptors.OpDeregisterMemory:
		e.deregisterMemory(c.ID, descriptors.Body[descriptors.MemoryBody](c))
	case descriptors.OpCreateCQ:
		e.createCQ(c.ID, descriptors.Body[descriptors.CreateCQBody](c))
	case descriptors.OpDestroyCQ:
		e.destroyCQ(c.ID, descriptors.Body[descriptors.CQBody](c))
	case descriptors.OpCreateEndpoint:
		e.createEndpoint(c.ID, descriptors.Body[descriptors.CreateEndpointBody](c))
	case descriptors.OpDestroyEndpoint:
		e.destroyEndpoint(c.ID, descriptors.Body[descriptors.EndpointBody](c))
	case descriptors.OpQueryEndpoint:
		e.queryEndpoint(c.ID, descriptors.Body[descriptors.EndpointBody](c))
	case descriptors.OpConnectWait:
		e.connectWait(c.ID, descriptors.Body[descriptors.ConnectWaitBody](c))
	case descriptors.OpConnectAccept:
		e.connectAccept(c.ID, descriptors.Body[descriptors.ConnectAcceptBody](c))
	case descriptors.OpConnectReject:
		e.connectReject(c.ID, descriptors.Body[descriptors.ConnectRejectBody](c))
	case descriptors.OpConnectRequest:
		e.connectRequest(c.ID, descriptors.Body[descriptors.ConnectRequestBody](c))
	case descriptors.OpDisconnect:
		e.disconnect(c.ID, descriptors.Body[descriptors.EndpointBody](c))
	case descriptors.OpAbort:
		e.abort(c.ID, descriptors.Body[descriptors.AbortBody](c))
	case descriptors.OpSetPayload:
		e.setPayload(c.ID, descriptors.Body[descriptors.SetPayloadBody](c))
	default:
		e.answer(c.ID, descriptors.ResultBadOpcode, fieldOpcode)
	}
}

// answer replies to a command without a body. field is the offset of the one
// that was refused.
func (e *Engine) answer(id uint16, r descriptors.Result, field uint16) {
	e.entry = descriptors.AdminEntry{Kind: descriptors.EntryReply, ID: id, Result: r, Field: field}
	e.host.AdminEntry(&e.entry)
}

// answerWith replies to a command that has succeeded.
func answerWith[T descriptors.ReplyBody](e *Engine, id uint16, body T) {
	e.entry = descriptors.AdminEntry{Kind: descriptors.EntryReply, ID: id, Result: descriptors.ResultSuccess}
	*descriptors.Reply[T](&e.entry) = body
	e.host.AdminEntry(&e.entry)
}

// subject finds the endpoint that a command is about. What was posted to it before
// the command counts as posted.
func (e *Engine) subject(id uint32) *endpoint {
	ep := e.endpoint(id)
	if ep != nil {
		e.takeBells(ep)
	}
	return ep
}

func (e *Engine) connectWait(id uint16, b *descriptors.ConnectWaitBody) {
	switch {
	case b.TimeoutMS == 0:
		e.answer(id, descriptors.ResultInvalidParameter, fieldWaitTimeout)
	case !sound(&b.Local):
		e.answer(id, descriptors.ResultInvalidParameter, fieldWaitLocal)
	default:
		e.waiters = append(e.waiters, waiter{id, e.now + time.Duration(b.TimeoutMS)*time.Millisecond, b.Local})
	}
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

func (e *Engine) connectAccept(id uint16, b *descriptors.ConnectAcceptBody) {
	r, why := e.requests.find(b.Connection)
	ep := e.subject(b.Endpoint)
	switch {
	case r == nil:
		e.answer(id, why, fieldAcceptConnection)
		return
	case ep == nil:
		e.answer(id, descriptors.ResultInvalidParameter, fieldAcceptEndpoint)
		return
	case b.TimeoutMS == 0:
		e.answer(id, descriptors.ResultInvalidParameter, fieldAcceptTimeout)
		return
	case ep.state != descriptors.StateIdle || ep.kind != descriptors.KindVI:
		e.answer(id, descriptors.ResultInvalidState, fieldAcceptEndpoint)
		return
	case ep.reliability != r.body.Reliability:
		e.answer(id, descriptors.ResultInvalidReliability, fieldAcceptEndpoint)
		return
	case ep.maxTransfer != r.body.MaxTransfer:
		e.answer(id, descriptors.ResultInvalidMTU, fieldAcceptEndpoint)
		return
	}
	key, ok := e.key()
	if !ok {
		e.answer(id, descriptors.ResultResource, 0)
		return
	}
	e.requests.answered(r, requestAccepted)
	r.by, ep.request = ep, r
	ep.remote = r.from
	ep.remote.ourKey = key
	s := &setup{command: id, accepting: true, to: r.from.mac, body: ep.body(), rights: r.body.Rights, options: r.body.Options,
		deadline: e.now + time.Duration(b.TimeoutMS)*time.Millisecond}
	s.body.Remote, s.body.Local = r.body.Local, r.body.Remote
	e.startSetup(ep, s)
}

func (e *Engine) connectReject(id uint16, b *descriptors.ConnectRejectBody) {
	r, why := e.requests.find(b.Connection)
	if r == nil {
		e.answer(id, why, fieldAcceptConnection)
		return
	}
	e.requests.answered(r, requestRejected)
	e.requests.end(r)
	e.sendReject(r.from, descriptors.ResultReject)
	e.answer(id, descriptors.ResultSuccess, 0)
}

func (e *Engine) connectRequest(id uint16, b *descriptors.ConnectRequestBody) {
	ep := e.subject(b.Endpoint)
	switch {
	case ep == nil:
		e.answer(id, descriptors.ResultInvalidParameter, fieldEndpoint)
		return
	case b.TimeoutMS == 0:
		e.answer(id, descriptors.ResultInvalidParameter, fieldRequestTimeout)
		return
	case b.RemoteMAC.IsMulticast() && b.RemoteMAC != descriptors.Broadcast:
		e.answer(id, descriptors.ResultInvalidParameter, fieldRequestMAC)
		return
	case !sound(&b.Remote):
		e.answer(id, descriptors.ResultInvalidParameter, fieldRequestRemote)
		return
	case !sound(&b.Local):
		e.answer(id, descriptors.ResultInvalidParameter, fieldRequestLocal)
		return
	case ep.state != descriptors.StateIdle || ep.kind != descriptors.KindVI:
		e.answer(id, descriptors.ResultInvalidState, fieldEndpoint)
		return
	}
	key, ok := e.key()
	if !ok {
		e.answer(id, descriptors.ResultResource, 0)
		return
	}
	ep.remote = remote{ourKey: key}
	s := &setup{command: id, to: b.RemoteMAC, body: ep.body(),
		deadline: e.now + time.Duration(b.TimeoutMS)*time.Millisecond}
	s.body.Remote, s.body.Local = b.Remote, b.Local
	e.startSetup(ep, s)
}

// disconnect ends a connection, or an attempt at one, and takes an endpoint out
// of the error state. Whatever is posted is flushed.
func (e *Engine) disconnect(id uint16, b *descriptors.EndpointBody) {
	ep := e.subject(b.Endpoint)
	if ep == nil {
		e.answer(id, descriptors.ResultInvalidParameter, fieldEndpoint)
		return
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
	e.answer(id, descriptors.ResultSuccess, 0)
}

// abort ends a command that waits for the network.
func (e *Engine) abort(id uint16, b *descriptors.AbortBody) {
	for i, w := range e.waiters {
		if w.command == b.ID {
			e.waiters = append(e.waiters[:i], e.waiters[i+1:]...)
			e.answer(w.command, descriptors.ResultAborted, 0)
			e.answer(id, descriptors.ResultSuccess, 0)
			return
		}
	}
	for _, ep := range e.settingUp {
		if ep.setup.command == b.ID {
			e.endSetup(ep, descriptors.ResultAborted)
			e.answer(id, descriptors.ResultSuccess, 0)
			return
		}
	}
	e.answer(id, descriptors.ResultInvalidParameter, fieldAbortID)
}
