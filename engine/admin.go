package engine

import "github.com/trapeze-nic/trapeze/descriptors"

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
		if why = e.requests.wait(c.ID, descriptors.Body[descriptors.ConnectWaitBody](c)); why == (refusal{}) {
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
	if e.requests.abort(command) {
		return refusal{}
	}
	for _, ep := range e.settingUp {
		if ep.setup.command == command {
			e.endSetup(ep, descriptors.ResultAborted)
			return refusal{}
		}
	}
	return refusal{descriptors.ResultInvalidParameter, fieldAbortID}
}
