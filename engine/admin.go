package engine

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// Execute carries out an admin command. Its reply goes to Host.AdminEntry:
// before Execute returns, or later for the commands that wait for the network.
// A command that is refused changes nothing.
func (e *Engine) Execute(cmd *datasheet.Command) {
	c := *cmd // the host may be writing
	defer e.Wake()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.core.look()
	e.execute(&c)
	e.finish()
}

func (e *Engine) execute(c *datasheet.Command) {
	switch c.Opcode {
	case datasheet.OpNop:
		e.core.answer(c.ID, refusal{})
	case datasheet.OpCreatePtag:
		doWithReply(e, c, e.core.regions.createPtag)
	case datasheet.OpDestroyPtag:
		do(e, c, e.core.regions.destroyPtag)
	case datasheet.OpRegisterMemory:
		doWithReply(e, c, e.core.regions.register)
	case datasheet.OpDeregisterMemory:
		do(e, c, e.deregisterMemory)
	case datasheet.OpCreateCQ:
		doWithReply(e, c, e.core.cqs.create)
	case datasheet.OpDestroyCQ:
		do(e, c, e.core.cqs.destroy)
	case datasheet.OpCreateEndpoint:
		doWithReply(e, c, e.createEndpoint)
	case datasheet.OpDestroyEndpoint:
		do(e, c, e.destroyEndpoint)
	case datasheet.OpQueryEndpoint:
		doWithReply(e, c, e.queryEndpoint)
	case datasheet.OpConnectWait:
		doLater(e, c, e.core.requests.wait)
	case datasheet.OpConnectAccept:
		doLater(e, c, e.core.setups.accept)
	case datasheet.OpConnectReject:
		do(e, c, e.core.setups.reject)
	case datasheet.OpConnectRequest:
		doLater(e, c, e.core.setups.request)
	case datasheet.OpDisconnect:
		do(e, c, e.disconnect)
	case datasheet.OpAbort:
		do(e, c, e.abort)
	case datasheet.OpSetPayload:
		do(e, c, e.setPayload)
	case datasheet.OpModifyEndpoint:
		do(e, c, e.modifyEndpoint)
	case datasheet.OpModifyMemory:
		do(e, c, e.core.regions.modify)
	case datasheet.OpResizeCQ:
		doWithReply(e, c, e.core.cqs.resize)
	default:
		e.core.answer(c.ID, refusal{datasheet.ResultBadOpcode, fieldOpcode})
	}
}

// do carries out a command whose reply has no body, doWithReply one whose reply has one.
func do[B datasheet.CommandBody](e *Engine, c *datasheet.Command, f func(*B) refusal) {
	e.core.answer(c.ID, f(datasheet.Body[B](c)))
}

func doWithReply[B datasheet.CommandBody, R datasheet.ReplyBody](e *Engine, c *datasheet.Command, f func(*B) (R, refusal)) {
	reply, why := f(datasheet.Body[B](c))
	if why != (refusal{}) {
		e.core.answer(c.ID, why)
		return
	}
	answerWith(&e.core.reports, c.ID, reply)
}

// doLater begins with a command that waits for the network, and is answered when it ends.
func doLater[B datasheet.CommandBody](e *Engine, c *datasheet.Command, f func(uint16, *B) refusal) {
	if why := f(c.ID, datasheet.Body[B](c)); why != (refusal{}) {
		e.core.answer(c.ID, why)
	}
}

// disconnect ends a connection, or an attempt at one, and takes an endpoint out
// of the error state. Whatever is posted is flushed.
func (e *Engine) disconnect(b *datasheet.EndpointBody) refusal {
	ep := e.core.subject(b.Endpoint)
	if ep == nil {
		return refusal{datasheet.ResultInvalidParameter, fieldEndpoint}
	}
	if ep.sharers > 0 {
		return refusal{datasheet.ResultResource, fieldEndpoint} // its receives may be in work for them
	}
	switch ep.state {
	case datasheet.StateConnectPending:
		e.core.setups.end(ep, datasheet.ResultAborted)
	case datasheet.StateConnected:
		reason := datasheet.ResultSuccess
		if _, unfinished := ep.delivery.outstanding(ep); unfinished {
			reason = datasheet.ResultAborted
		}
		e.core.conns.end(ep, reason, true)
	}
	e.core.conns.enterError(ep, datasheet.StatusFlushed)
	ep.state = datasheet.StateIdle
	return refusal{}
}

// abort ends a command that waits for the network.
func (e *Engine) abort(b *datasheet.AbortBody) refusal {
	if e.core.requests.abort(b.ID) || e.core.setups.abort(b.ID) {
		return refusal{}
	}
	return refusal{datasheet.ResultInvalidParameter, fieldAbortID}
}
