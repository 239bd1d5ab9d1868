package driver_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/script"
)

// answer says how the device answers a command.
type answer struct {
	result datasheet.Result
	none   bool
	gone   bool // it goes, without an answer
	late   bool // to what was not answered, with success, before the result
}

const anyOpcode = datasheet.Opcode(0xffff)

// answerTo is called with the device's lock held.
func (p *play) answerTo(c *datasheet.Command) (datasheet.Result, bool) {
	p.asked = append(p.asked, c.Opcode)
	a, special := p.answers[c.Opcode]
	if !special {
		a = p.answers[anyOpcode]
	}
	if f := p.during[c.Opcode]; f != nil {
		p.duringOut += f()
	}
	if a.late {
		for _, u := range p.d.admin.unanswered {
			p.d.reply(&u, datasheet.ResultSuccess)
		}
	}
	if c.Opcode == datasheet.OpAbort && !special {
		id := datasheet.Body[datasheet.AbortBody](c).ID
		for _, u := range p.d.admin.unanswered {
			if u.ID == id {
				p.d.reply(&u, datasheet.ResultAborted)
			}
		}
	}
	p.d.gone = p.d.gone || a.gone
	if a.none && p.silence != nil {
		p.silence()
	}
	return a.result, !a.none && !a.gone
}

func (p *play) tamperWith(e *datasheet.AdminEntry) {
	if e.Kind == datasheet.EntryReply {
		p.last = *e
	}
	for _, f := range p.tampers {
		f(e)
	}
}

func (p *play) opcode(name string) datasheet.Opcode {
	p.t.Helper()
	for op := range datasheet.OpResizeCQ + 1 {
		if op.String() == name {
			return op
		}
	}
	p.t.Fatalf("there is no command %q", name)
	return 0
}

// answer is: answer RESULT|none|gone|soundly [COMMAND...]. The device answers so to all commands, or to
// those named.
func (p *play) answer(a *script.Arguments) string {
	p.d.with(func() {
		var is answer
		switch w := a.Words[0]; w {
		case "none":
			is.none = true
		case "gone":
			is.gone = true
		case "late":
			is.late, is.result = true, datasheet.ResultInvalidParameter
		case "soundly":
		default:
			is.result = datasheet.Result(p.value(w))
		}
		if len(a.Words) == 1 {
			clear(p.answers)
			p.answers[anyOpcode] = is
		}
		for _, name := range a.Words[1:] {
			p.answers[p.opcode(name)] = is
		}
	})
	return ""
}

// bodies are what replies can be tampered with as.
var bodies = map[string]func(e *datasheet.AdminEntry) any{
	"entry": func(e *datasheet.AdminEntry) any { return e }, "created": func(e *datasheet.AdminEntry) any { return datasheet.Reply[datasheet.EndpointCreated](e) },
	"region":     func(e *datasheet.AdminEntry) any { return datasheet.Reply[datasheet.RegionReply](e) },
	"connection": func(e *datasheet.AdminEntry) any { return datasheet.Reply[datasheet.ConnectionReply](e) },
	"endpoint":   func(e *datasheet.AdminEntry) any { return datasheet.Reply[datasheet.EndpointReply](e) },
}

// tamper is: tamper BODY FIELD=VALUE..., or tamper off. What the device answers is changed from now on.
func (p *play) tamper(a *script.Arguments) string {
	p.d.with(func() {
		if a.Words[0] == "off" {
			p.tampers = nil
			return
		}
		body := bodies[a.Words[0]]
		p.tampers = append(p.tampers, func(e *datasheet.AdminEntry) {
			if e.Kind == datasheet.EntryReply {
				p.change(body(e), a.Changes)
			}
		})
	})
	return ""
}

// reply is: reply RESULT. The device answers what it has not.
func (p *play) reply(a *script.Arguments) string {
	p.d.with(func() {
		for _, c := range p.d.admin.unanswered {
			p.d.reply(&c, datasheet.Result(p.value(a.Words[0])))
		}
		p.d.admin.unanswered = nil
	})
	return ""
}

// postEntry is: post-entry FIELD=VALUE..., an entry of the admin queue that no command has asked for.
func (p *play) postEntry(a *script.Arguments) string {
	var e datasheet.AdminEntry
	p.change(&e, a.Changes)
	p.d.with(func() { p.d.post(e) })
	return ""
}

func (p *play) repeatReply(*script.Arguments) string {
	p.d.with(func() { p.d.post(p.last) })
	return ""
}

// event is: event CODE FIELD=VALUE...
func (p *play) event(a *script.Arguments) string {
	e := p.eventOf(a)
	p.d.with(func() { p.d.event(e) })
	return ""
}

func (p *play) eventOf(a *script.Arguments) datasheet.Event {
	e := datasheet.Event{Code: datasheet.EventCode(p.value(a.Words[0])), CQ: datasheet.NoCQ}
	if name, ok := a.Option("Descriptor"); ok && p.ds[name] != nil {
		e.Descriptor = p.ds[name].Token().Address
	} else if ok {
		e.Descriptor = p.value(name)
	}
	p.change(&e, a.Changes)
	return e
}

// whenAsked is: during OPCODE COMMAND... The device does it when it gets such a command, before it answers.
func (p *play) whenAsked(a *script.Arguments) string {
	op, words := p.opcode(a.Words[0]), wordsOf(a)[1:]
	f := func() string { return p.do(slices.Clone(words)) }
	if words[0] == "event" {
		e := p.eventOf(script.Parse(words[1:]))
		f = func() string { p.d.event(e); return "" }
	}
	p.d.with(func() { p.during[op] = f })
	return ""
}

// duringSaid shows what commands said meanwhile.
func (p *play) duringSaid(*script.Arguments) string { return p.duringOut }

// showUnanswered shows the commands that the device has not answered, and whether waits have limits.
func (p *play) showUnanswered(*script.Arguments) (lines string) {
	p.d.with(func() {
		for _, u := range p.d.admin.unanswered {
			lines += fmt.Sprintf("unanswered: %v", u.Opcode)
			if u.Opcode == datasheet.OpConnectWait {
				w := datasheet.Body[datasheet.ConnectWaitBody](&u)
				lines += fmt.Sprintf(" at %q, limited %v", w.Local.Data[:w.Local.Len], w.TimeoutMS > 0)
			}
			lines += "\n"
		}
	})
	return lines
}

// watchReset has at-reset show how many mappings the device had when it was reset, and its DMA control.
func (p *play) watchReset(*script.Arguments) string {
	p.d.with(func() {
		p.d.onWrite = func(offset uint64, _ uint32) bool {
			if offset == datasheet.HealthOffset+datasheet.RegControl {
				p.duringOut = fmt.Sprintf("at the reset: %d mappings, DMA control %#x\n", len(p.d.dma), p.d.get(datasheet.DMAOffset+datasheet.RegDMAControl))
			}
			return false
		}
	})
	return ""
}

func (p *play) atReset(*script.Arguments) string {
	return p.duringOut + fmt.Sprintf("PCI command register: %#x", p.d.config[4])
}

// differ says whether two numbers are the same.
func (p *play) differ(a *script.Arguments) string {
	if p.value(a.Words[0]) == p.value(a.Words[1]) {
		return a.Words[0] + " and " + a.Words[1] + " are alike"
	}
	return ""
}

// showAsked shows which commands the device was given since it did last.
func (p *play) showAsked(a *script.Arguments) string {
	var names []string
	p.d.with(func() {
		for _, op := range p.asked {
			names = append(names, op.String())
		}
		p.asked = nil
	})
	if a.Flag("nothing") {
		return ""
	}
	return fmt.Sprintf("asked: %s", strings.Join(names, " "))
}
