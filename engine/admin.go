package engine

import "github.com/trapeze-nic/trapeze/descriptors"

// Execute carries out an admin command. Its reply goes to Host.AdminEntry:
// before Execute returns, or later for the commands that wait for the network.
// A command that is refused changes nothing.
func (e *Engine) Execute(cmd *descriptors.Command) {
	c := *cmd // the host may be writing
	defer e.Wake()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.look()
	e.execute(&c)
	e.finish()
}

func (e *Engine) execute(c *descriptors.Command) {
	switch c.Opcode {
	case descriptors.OpNop:
		e.answer(c.ID, refusal{})
	case descriptors.OpCreatePtag:
		doWithReply(e, c, e.regions.createPtag)
	case descriptors.OpDestroyPtag:
		do(e, c, e.regions.destroyPtag)
	case descriptors.OpRegisterMemory:
		doWithReply(e, c, e.regions.register)
	case descriptors.OpDeregisterMemory:
		do(e, c, e.deregisterMemory)
	case descriptors.OpCreateCQ:
		doWithReply(e, c, e.cqs.create)
	case descriptors.OpDestroyCQ:
		do(e, c, e.cqs.destroy)
	case descriptors.OpCreateEndpoint:
		doWithReply(e, c, e.createEndpoint)
	case descriptors.OpDestroyEndpoint:
		do(e, c, e.destroyEndpoint)
	case descriptors.OpQueryEndpoint:
		doWithReply(e, c, e.queryEndpoint)
	case descriptors.OpConnectWait:
		doLater(e, c, e.requests.wait)
	case descriptors.OpConnectAccept:
		doLater(e, c, e.setups.accept)
	case descriptors.OpConnectReject:
		do(e, c, e.setups.reject)
	case descriptors.OpConnectRequest:
		doLater(e, c, e.setups.request)
	case descriptors.OpDisconnect:
		do(e, c, e.disconnect)
	case descriptors.OpAbort:
		do(e, c, e.abort)
	case descriptors.OpSetPayload:
		do(e, c, e.setPayload)
	case descriptors.OpModifyEndpoint:
		do(e, c, e.modifyEndpoint)
	case descriptors.OpModifyMemory:
		do(e, c, e.regions.modify)
	case descriptors.OpResizeCQ:
		doWithReply(e, c, e.cqs.resize)
	default:
		e.answer(c.ID, refusal{descriptors.ResultBadOpcode, fieldOpcode})
	}
}

// do carries out a command whose reply has no body, doWithReply one whose reply has one.
func do[B descriptors.CommandBody](e *Engine, c *descriptors.Command, f func(*B) refusal) {
	e.answer(c.ID, f(descriptors.Body[B](c)))
}

func doWithReply[B descriptors.CommandBody, R descriptors.ReplyBody](e *Engine, c *descriptors.Command, f func(*B) (R, refusal)) {
	reply, why := f(descriptors.Body[B](c))
	if why != (refusal{}) {
		e.answer(c.ID, why)
		return
	}
	answerWith(&e.reports, c.ID, reply)
}

// doLater begins with a command that waits for the network, and is answered when it ends.
func doLater[B descriptors.CommandBody](e *Engine, c *descriptors.Command, f func(uint16, *B) refusal) {
	if why := f(c.ID, descriptors.Body[B](c)); why != (refusal{}) {
		e.answer(c.ID, why)
	}
}

// disconnect ends a connection, or an attempt at one, and takes an endpoint out
// of the error state. Whatever is posted is flushed.
func (e *Engine) disconnect(b *descriptors.EndpointBody) refusal {
	ep := e.subject(b.Endpoint)
	if ep == nil {
		return refusal{descriptors.ResultInvalidParameter, fieldEndpoint}
	}
	if ep.sharers > 0 {
		return refusal{descriptors.ResultResource, fieldEndpoint} // its receives may be in work for them
	}
	switch ep.state {
	case descriptors.StateConnectPending:
		e.setups.end(ep, descriptors.ResultAborted)
	case descriptors.StateConnected:
		reason := descriptors.ResultSuccess
		if ep.rel.unfinished() {
			reason = descriptors.ResultAborted
		}
		e.conns.end(ep, reason, true)
	}
	e.conns.enterError(ep, descriptors.StatusFlushed)
	ep.state = descriptors.StateIdle
	return refusal{}
}

// abort ends a command that waits for the network.
func (e *Engine) abort(b *descriptors.AbortBody) refusal {
	if e.requests.abort(b.ID) || e.setups.abort(b.ID) {
		return refusal{}
	}
	return refusal{descriptors.ResultInvalidParameter, fieldAbortID}
}
