package engine_test

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

var _ = also(map[string]func(p *play, a *arguments) string{
	"template": (*play).template, "do": (*play).command, "reply": (*play).reply, "replied": (*play).replied,
	"wait": (*play).waitFor, "request": (*play).request, "offer": (*play).offer, "accept": (*play).accept,
	"memory": (*play).memory, "free": (*play).free,
})

// bodies finds the body of a command, and replies what is in its reply.
var bodies = map[datasheet.Opcode]func(c *datasheet.Command) any{
	datasheet.OpNop:              func(c *datasheet.Command) any { return datasheet.Body[datasheet.PtagBody](c) },
	datasheet.OpCreatePtag:       func(c *datasheet.Command) any { return datasheet.Body[datasheet.PtagBody](c) },
	datasheet.OpDestroyPtag:      func(c *datasheet.Command) any { return datasheet.Body[datasheet.PtagBody](c) },
	datasheet.OpRegisterMemory:   func(c *datasheet.Command) any { return datasheet.Body[datasheet.RegisterMemoryBody](c) },
	datasheet.OpDeregisterMemory: func(c *datasheet.Command) any { return datasheet.Body[datasheet.MemoryBody](c) },
	datasheet.OpCreateCQ:         func(c *datasheet.Command) any { return datasheet.Body[datasheet.CreateCQBody](c) },
	datasheet.OpDestroyCQ:        func(c *datasheet.Command) any { return datasheet.Body[datasheet.CQBody](c) },
	datasheet.OpCreateEndpoint:   func(c *datasheet.Command) any { return datasheet.Body[datasheet.CreateEndpointBody](c) },
	datasheet.OpDestroyEndpoint:  func(c *datasheet.Command) any { return datasheet.Body[datasheet.EndpointBody](c) },
	datasheet.OpQueryEndpoint:    func(c *datasheet.Command) any { return datasheet.Body[datasheet.EndpointBody](c) },
	datasheet.OpConnectWait:      func(c *datasheet.Command) any { return datasheet.Body[datasheet.ConnectWaitBody](c) },
	datasheet.OpConnectAccept:    func(c *datasheet.Command) any { return datasheet.Body[datasheet.ConnectAcceptBody](c) },
	datasheet.OpConnectReject:    func(c *datasheet.Command) any { return datasheet.Body[datasheet.ConnectRejectBody](c) },
	datasheet.OpConnectRequest:   func(c *datasheet.Command) any { return datasheet.Body[datasheet.ConnectRequestBody](c) },
	datasheet.OpDisconnect:       func(c *datasheet.Command) any { return datasheet.Body[datasheet.EndpointBody](c) },
	datasheet.OpAbort:            func(c *datasheet.Command) any { return datasheet.Body[datasheet.AbortBody](c) },
	datasheet.OpSetPayload:       func(c *datasheet.Command) any { return datasheet.Body[datasheet.SetPayloadBody](c) },
	datasheet.OpModifyEndpoint:   func(c *datasheet.Command) any { return datasheet.Body[datasheet.ModifyEndpointBody](c) },
	datasheet.OpModifyMemory:     func(c *datasheet.Command) any { return datasheet.Body[datasheet.ModifyMemoryBody](c) },
	datasheet.OpResizeCQ:         func(c *datasheet.Command) any { return datasheet.Body[datasheet.ResizeCQBody](c) },
}

var replies = map[datasheet.Opcode]func(e *datasheet.AdminEntry) any{
	datasheet.OpCreatePtag:     func(e *datasheet.AdminEntry) any { return datasheet.Reply[datasheet.PtagBody](e) },
	datasheet.OpRegisterMemory: func(e *datasheet.AdminEntry) any { return datasheet.Reply[datasheet.RegionReply](e) },
	datasheet.OpCreateCQ:       func(e *datasheet.AdminEntry) any { return datasheet.Reply[datasheet.CQBody](e) },
	datasheet.OpCreateEndpoint: func(e *datasheet.AdminEntry) any { return datasheet.Reply[datasheet.EndpointCreated](e) },
	datasheet.OpQueryEndpoint:  func(e *datasheet.AdminEntry) any { return datasheet.Reply[datasheet.EndpointReply](e) },
	datasheet.OpConnectWait:    func(e *datasheet.AdminEntry) any { return datasheet.Reply[datasheet.ConnectionReply](e) },
	datasheet.OpConnectRequest: func(e *datasheet.AdminEntry) any { return datasheet.Reply[datasheet.ConnectedReply](e) },
	datasheet.OpConnectAccept:  func(e *datasheet.AdminEntry) any { return datasheet.Reply[datasheet.ConnectedReply](e) },
	datasheet.OpResizeCQ:       func(e *datasheet.AdminEntry) any { return datasheet.Reply[datasheet.ResizeCQReply](e) },
}

// mainField is the field of a reply that a command is there for.
var mainField = map[datasheet.Opcode]string{datasheet.OpCreatePtag: "Ptag", datasheet.OpRegisterMemory: "Handle",
	datasheet.OpCreateCQ: "CQ", datasheet.OpCreateEndpoint: "Endpoint", datasheet.OpConnectWait: "Connection", datasheet.OpResizeCQ: "Written"}

func (p *play) opcode(name string) datasheet.Opcode {
	p.t.Helper()
	for op := range datasheet.OpResizeCQ + 1 {
		if op.String() == name {
			return op
		}
	}
	if v, err := strconv.ParseUint(name, 0, 16); err == nil {
		return datasheet.Opcode(v)
	}
	p.t.Fatalf("there is no command %q", name)
	return 0
}

// made is a command with changes to its template.
func (p *play) made(name string, a *arguments) datasheet.Command {
	p.t.Helper()
	op := p.opcode(name)
	c := p.bodies[op]
	c.Opcode = op
	if body := bodies[op]; body != nil {
		p.change(body(&c), a.Changes...)
	}
	return c
}

// template keeps the changes for all later commands of a kind.
func (p *play) template(a *arguments) string {
	c := p.made(a.Words[0], a)
	p.bodies[c.Opcode] = c
	return ""
}

func (n *node) execute(c datasheet.Command) uint16 {
	n.nextID++
	c.ID = n.nextID
	n.e.Execute(&c)
	return n.nextID
}

// written returns a command as the script writes it.
func written(name string, a *arguments) string {
	parts := []string{name}
	for _, c := range a.Changes {
		parts = append(parts, c.Path+c.Op+c.Value)
	}
	return strings.Join(parts, " ")
}

// command is: do NODE OPCODE FIELD=VALUE... [as=NAME]. With a name it has to succeed. What stands
// between slashes is a command each.
func (p *play) command(a *arguments) (lines string) {
	p.t.Helper()
	if a.tries != nil {
		for _, try := range a.tries {
			lines += p.command(newArguments(p, slices.Concat(a.Words, try))) + "\n"
		}
		return lines
	}
	n := p.node(a.Words[0])
	as, named := a.Option("as")
	what := written(a.Words[1], a)
	c := p.made(a.Words[1], a)
	r := n.wait(n.execute(c))
	p.keep(as, c.Opcode, &r)
	if named && r.Result == datasheet.ResultSuccess {
		return ""
	}
	return what + ": " + p.result(&c, &r)
}

// result describes a reply, with the name of the field that was refused.
func (p *play) result(c *datasheet.Command, r *datasheet.AdminEntry) string {
	s := r.Result.String()
	const body = 8 // bytes of a command before its body
	if make := bodies[c.Opcode]; make != nil && r.Field >= body {
		t := reflect.TypeOf(make(c)).Elem()
		for i := range t.NumField() {
			f := t.Field(i)
			if at := body + f.Offset; f.Name != "_" && uintptr(r.Field) >= at && uintptr(r.Field) < at+f.Type.Size() {
				return s + " (" + f.Name + ")"
			}
		}
	}
	if r.Field != 0 {
		s += fmt.Sprintf(" (offset %d)", r.Field)
	}
	return s
}

// keep gives names to what a reply has.
func (p *play) keep(name string, op datasheet.Opcode, r *datasheet.AdminEntry) {
	reply := replies[op]
	if name == "" || reply == nil || r.Result != datasheet.ResultSuccess {
		return
	}
	v := reflect.ValueOf(reply(r)).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); f.CanUint() && v.Type().Field(i).Name != "_" {
			p.numbers[name+"."+v.Type().Field(i).Name] = f.Uint()
		}
	}
	if main := mainField[op]; main != "" {
		p.numbers[name] = v.FieldByName(main).Uint()
	}
}

// reply is: reply NAME [FIELD...]. It waits for the end of a command, and shows fields of the reply.
func (p *play) reply(a *arguments) string {
	p.t.Helper()
	id, ok := p.ids[a.Words[0]]
	must.Be(p.t, ok, true, "there is no command %q under way", a.Words[0])
	r := id.n.wait(id.id)
	p.keep(a.Words[0], id.op, &r)
	s := a.Words[0] + ": " + r.Result.String()
	if len(a.Words) > 1 {
		v := reflect.ValueOf(replies[id.op](&r)).Elem()
		for _, f := range a.Words[1:] {
			if text := p.show(p.field(v, f)); f == "RemoteEndpoint" {
				other := p.w.a
				if id.n == other {
					other = p.w.b
				}
				s += ", " + f + " " + p.endName(other, uint32(p.field(v, f).Uint()))
			} else {
				s += ", " + f + " " + text
			}
		}
	}
	return s
}

// replied shows whether a command has been answered.
func (p *play) replied(a *arguments) string {
	_, ok := p.ids[a.Words[0]].n.replies[p.ids[a.Words[0]].id]
	return fmt.Sprintf("%s is answered: %v", a.Words[0], ok)
}

// waitFor is: wait NAME NODE SERVICE [MILLISECONDS].
func (p *play) waitFor(a *arguments) string {
	ms := uint32(forever)
	if len(a.Words) > 3 {
		ms = uint32(p.value(a.Words[3]))
	}
	n := p.node(a.Words[1])
	p.ids[a.Words[0]] = pending{n, waitFor(n, a.Words[2], ms), datasheet.OpConnectWait}
	p.numbers[a.Words[0]+".id"] = uint64(p.ids[a.Words[0]].id)
	return ""
}

// request is: request NAME VI to=NODE SERVICE [MILLISECONDS].
func (p *play) request(a *arguments) string {
	to, _ := a.Option("to")
	ms := uint32(forever)
	if len(a.Words) > 3 {
		ms = uint32(p.value(a.Words[3]))
	}
	v := p.endpoint(a.Words[1])
	p.ids[a.Words[0]] = pending{v.n, request(v, p.mac(to), a.Words[2], ms), datasheet.OpConnectRequest}
	p.numbers[a.Words[0]+".id"] = uint64(p.ids[a.Words[0]].id)
	return ""
}

// offer is: offer NAME WAIT [FIELD...]. It waits for a request and gives the connection a name.
func (p *play) offer(a *arguments) string {
	p.t.Helper()
	out := p.reply(newArguments(p, a.Words[1:]))
	p.numbers[a.Words[0]] = p.numbers[a.Words[1]]
	if len(a.Words) == 2 && strings.HasSuffix(out, ": success") {
		return ""
	}
	return out
}

// accept is: accept NAME CONNECTION VI [MILLISECONDS].
func (p *play) accept(a *arguments) string {
	ms := uint32(forever)
	if len(a.Words) > 3 {
		ms = uint32(p.value(a.Words[3]))
	}
	v := p.endpoint(a.Words[2])
	p.ids[a.Words[0]] = pending{v.n, accept(v.n, uint32(p.value(a.Words[1])), v, ms), datasheet.OpConnectAccept}
	return ""
}

// memory is: memory NODE NAME [FIELD=VALUE...]. It registers all of a node's memory, or a part.
func (p *play) memory(a *arguments) string {
	p.t.Helper()
	n := p.node(a.Words[0])
	body := datasheet.RegisterMemoryBody{Address: hostBase, Length: uint64(len(n.mem)), IOVA: busBase}
	p.change(&body, a.Changes...)
	r := do(n, datasheet.OpRegisterMemory, body)
	p.keep(a.Words[1], datasheet.OpRegisterMemory, r)
	return ""
}

// free shows how much device memory has come or gone since it was last shown.
func (p *play) free(a *arguments) string {
	n := p.node(a.Words[0])
	now := uint64(n.e.FreeSRAM())
	d := int64(now - p.counts[a.Words[0]+" free"])
	p.counts[a.Words[0]+" free"] = now
	return fmt.Sprintf("%s: %+d bytes of device memory are free", a.Words[0], d)
}
