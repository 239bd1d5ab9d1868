package engine

import (
	"github.com/trapeze-nic/trapeze/engine/internal/core"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// Execute carries out an admin command. Its reply goes to Host.AdminEntry:
// before Execute returns, or later for the commands that wait for the network.
// A command that is refused changes nothing.
func (e *Engine) Execute(cmd *datasheet.Command) {
	c := *cmd // the host may be writing
	defer e.Wake()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.Look()
	e.execute(&c)
	e.finish()
}

func (e *Engine) execute(c *datasheet.Command) {
	switch c.Opcode {
	case datasheet.OpNop:
		e.Answer(c.ID, core.Refusal{})
	case datasheet.OpCreatePtag:
		doWithReply(e, c, e.Regions.CreatePtag)
	case datasheet.OpDestroyPtag:
		do(e, c, e.Regions.DestroyPtag)
	case datasheet.OpRegisterMemory:
		doWithReply(e, c, e.Regions.Register)
	case datasheet.OpDeregisterMemory:
		do(e, c, e.deregisterMemory)
	case datasheet.OpCreateCQ:
		doWithReply(e, c, e.CQs.Create)
	case datasheet.OpDestroyCQ:
		do(e, c, e.CQs.Destroy)
	case datasheet.OpCreateEndpoint:
		doWithReply(e, c, e.createEndpoint)
	case datasheet.OpDestroyEndpoint:
		do(e, c, e.destroyEndpoint)
	case datasheet.OpQueryEndpoint:
		doWithReply(e, c, e.queryEndpoint)
	case datasheet.OpConnectWait:
		doLater(e, c, e.Requests.Wait)
	case datasheet.OpConnectAccept:
		doLater(e, c, e.Setups.Accept)
	case datasheet.OpConnectReject:
		do(e, c, e.Setups.Reject)
	case datasheet.OpConnectRequest:
		doLater(e, c, e.Setups.Request)
	case datasheet.OpDisconnect:
		do(e, c, e.disconnect)
	case datasheet.OpAbort:
		do(e, c, e.abort)
	case datasheet.OpSetPayload:
		do(e, c, e.setPayload)
	case datasheet.OpModifyEndpoint:
		do(e, c, e.modifyEndpoint)
	case datasheet.OpModifyMemory:
		do(e, c, e.Regions.Modify)
	case datasheet.OpResizeCQ:
		doWithReply(e, c, e.CQs.Resize)
	default:
		e.Answer(c.ID, core.Refusal{Result: datasheet.ResultBadOpcode, Field: core.FieldOpcode})
	}
}

// do carries out a command whose reply has no body, doWithReply one whose reply has one.
func do[B datasheet.CommandBody](e *Engine, c *datasheet.Command, f func(*B) core.Refusal) {
	e.Answer(c.ID, f(datasheet.Body[B](c)))
}

func doWithReply[B datasheet.CommandBody, R datasheet.ReplyBody](e *Engine, c *datasheet.Command, f func(*B) (R, core.Refusal)) {
	reply, why := f(datasheet.Body[B](c))
	if why != (core.Refusal{}) {
		e.Answer(c.ID, why)
		return
	}
	core.AnswerWith(&e.Reports, c.ID, reply)
}

// doLater begins with a command that waits for the network, and is answered when it ends.
func doLater[B datasheet.CommandBody](e *Engine, c *datasheet.Command, f func(uint16, *B) core.Refusal) {
	if why := f(c.ID, datasheet.Body[B](c)); why != (core.Refusal{}) {
		e.Answer(c.ID, why)
	}
}

// disconnect ends a connection, or an attempt at one, and takes an endpoint out
// of the error state. Whatever is posted is flushed.
func (e *Engine) disconnect(b *datasheet.EndpointBody) core.Refusal {
	ep := e.Subject(b.Endpoint)
	if ep == nil {
		return core.Refusal{Result: datasheet.ResultInvalidParameter, Field: core.Field(b, &b.Endpoint)}
	}
	if ep.Sharers > 0 {
		return core.Refusal{Result: datasheet.ResultResource, Field: core.Field(b, &b.Endpoint)} // its receives may be in work for them
	}
	switch ep.State {
	case datasheet.StateConnectPending:
		e.Setups.End(ep, datasheet.ResultAborted)
	case datasheet.StateConnected:
		reason := datasheet.ResultSuccess
		if _, unfinished := ep.Delivery.Outstanding(ep); unfinished {
			reason = datasheet.ResultAborted
		}
		e.Conns.End(ep, reason, true)
	}
	e.Conns.EnterError(ep, datasheet.StatusFlushed)
	ep.State = datasheet.StateIdle
	return core.Refusal{}
}

// abort ends a command that waits for the network.
func (e *Engine) abort(b *datasheet.AbortBody) core.Refusal {
	if e.Requests.Abort(b.ID) || e.Setups.Abort(b.ID) {
		return core.Refusal{}
	}
	return core.Refusal{Result: datasheet.ResultInvalidParameter, Field: core.Field(b, &b.ID)}
}
