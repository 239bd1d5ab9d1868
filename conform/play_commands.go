package conform

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/trapeze-nic/trapeze/internal/script"
	"github.com/trapeze-nic/trapeze/via"
)

// prints and changes are the commands that are no calls: those that print something, and those that never do. README.md in
// scripts has them all.
var (
	prints  map[string]func(p *play, a *script.Arguments) string
	changes map[string]func(p *play, a *script.Arguments)
)

func init() { // the functions use the tables
	prints = map[string]func(p *play, a *script.Arguments) string{
		"join": (*play).join, "running": (*play).running, "post": (*play).post, "prepare": (*play).prepare,
		"write": (*play).write, "read": (*play).read, "take": (*play).take, "take-batch": (*play).takeBatch, "ends": (*play).ends,
		"heard": (*play).heard, "completions": (*play).completions, "holds": (*play).holds, "hex": (*play).hex,
		"show": (*play).show, "same": (*play).same, "differ": (*play).differ, "least": (*play).least,
		"send-from": (*play).sendFrom, "receive-into": (*play).receiveInto, "receive-some": (*play).receiveSome,
		"get": (*play).get, "readable": (*play).readable, "consume": (*play).consume, "event": (*play).event,
	}
	changes = map[string]func(p *play, a *script.Arguments){
		"vi": (*play).makeVI, "connect": (*play).connect, "request": (*play).request, "fresh": (*play).fresh,
		"context": (*play).makeContext, "cancel": (*play).cancel, "exchange": (*play).exchange, "fill": (*play).fill,
		"until": (*play).until, "poll": (*play).poll, "broken": (*play).broken, "release": (*play).release, "need": (*play).need,
		"only": (*play).only, "set": (*play).set, "pause": (*play).pause, "number": (*play).keepNumber,
		"rings": (*play).openRings, "put": (*play).put, "write-entry": (*play).writeEntry, "settle": (*play).settleRing,
		"channels": (*play).openChannels, "deliver": (*play).deliverWords, "over": (*play).connectionOver, "watch": (*play).watch,
		"map": (*play).mapMemory,
	}
}

// option takes a number out of the arguments.
func (p *play) option(a *script.Arguments, name string) (n uint64, given bool) {
	s, given := a.Option(name)
	if given {
		n = p.number(s)
	}
	return n, given
}

func (p *play) vi(name string) *via.VI {
	if vi, ok := p.value(name).Interface().(*via.VI); ok {
		return vi
	}
	return object[*End](p, name).VI
}

// makeVI is NAME NIC FIELD=... [memory=BYTES] [segments=N] [send=CQ] [recv=CQ]: a VI with memory and descriptors.
func (p *play) makeVI(a *script.Arguments) {
	var attributes via.VIAttributes
	memory, sized := p.option(a, "memory")
	if !sized {
		memory = 64 << 10
	}
	segments, given := p.option(a, "segments")
	if !given {
		segments = 1
	}
	var cqs [2]*via.CQ
	for i, name := range []string{"send", "recv"} {
		if cq, ok := a.Option(name); ok {
			cqs[i] = object[*via.CQ](p, cq)
		}
	}
	p.change(reflect.ValueOf(&attributes).Elem(), a)
	nic := object[*via.NIC](p, a.Words[1])
	vi := Must(nic.CreateVI(Context(p), attributes, cqs[0], cqs[1]))(p)
	p.names[a.Words[0]] = reflect.ValueOf(Must(Equip(Context(p), nic, vi, int(memory), int(segments)))(p))
}

// connect is X Y [as=DISCRIMINATOR] and what vi takes: it connects two ends, and makes those that are not there,
// the first one on a and the second one on b.
func (p *play) connect(a *script.Arguments) {
	name, named := a.Option("as")
	if !named {
		name = p.Name()
	}
	for i, nic := range []string{"a", "b"} {
		if _, ok := p.names[a.Words[i]]; !ok {
			p.makeVI(&script.Arguments{Words: []string{a.Words[i], nic}, Changes: slices.Clone(a.Changes)})
		}
	}
	if s, ok := p.names[name]; ok {
		name = s.String()
	}
	OK(p, ConnectVIs(Context(p), p.vi(a.Words[0]), p.vi(a.Words[1]), strings.Trim(name, `"`)))
}

// request is NAME X NIC [in CONTEXT]: x asks the NIC for a connection. NAME is the request as the other end sees it, and
// join NAME says what becomes of it.
func (p *play) request(a *script.Arguments) {
	kind := ""
	if len(a.Words) > 4 {
		kind = a.Words[4]
	}
	c, ended := dial(p.context(kind), p, object[*End](p, a.Words[1]).VI, object[*via.NIC](p, a.Words[2]))
	p.names[a.Words[0]] = reflect.ValueOf(c)
	done := make(chan outcome, 1)
	p.begun[a.Words[0]] = done
	go func() { done <- outcome{err: <-ended} }()
}

// fresh opens two other NICs, which are a and b from then on.
func (p *play) fresh(*script.Arguments) {
	p.use(p.another())
}

// makeContext is NAME: cancel ends it.
func (p *play) makeContext(a *script.Arguments) {
	ctx, cancel := context.WithCancel(Context(p))
	p.contexts[a.Words[0]], p.cancels[a.Words[0]] = ctx, cancel
}

func (p *play) cancel(a *script.Arguments) {
	p.cancels[a.Words[0]]()
}

// join is NAME... [as=NAME]: it waits for calls, gives what they return a name, and prints their errors. Those of several
// are sorted.
func (p *play) join(a *script.Arguments) string {
	as, _ := a.Option("as")
	var lines []string
	for _, name := range a.Words {
		var o outcome
		p.Until(name, func() bool {
			select {
			case o = <-p.begun[name]:
				return true
			default:
				return false
			}
		})
		delete(p.begun, name)
		switch {
		case o.err != nil && len(a.Words) > 1:
			lines = append(lines, sayError(o.err))
		case o.err != nil:
			lines = append(lines, name+": "+sayError(o.err))
		case as != "":
			p.names[as] = o.values[0]
		case o.said != "":
			lines = append(lines, name+": "+o.said)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// running is NAME...: those calls have not returned.
func (p *play) running(a *script.Arguments) (out string) {
	for _, name := range a.Words {
		if len(p.begun[name]) > 0 {
			out += name + " has returned\n"
		}
	}
	return out
}

// poll is COUNT: both NICs make so much progress.
func (p *play) poll(a *script.Arguments) {
	for range p.number(a.Words[0]) {
		p.A.Poll()
		p.B.Poll()
	}
}

// need is EXPRESSION WORD...: it skips the check for that reason if the expression is 0.
func (p *play) need(a *script.Arguments) {
	if p.number(a.Words[0]) == 0 {
		p.Skip(strings.Join(a.Words[1:], " "))
	}
}

// only is EXPRESSION: if it is 0, the rest of the case does nothing.
func (p *play) only(a *script.Arguments) {
	p.over = p.number(a.Words[0]) == 0
}

// pause is MILLISECONDS.
func (p *play) pause(a *script.Arguments) {
	time.Sleep(time.Duration(p.number(a.Words[0])) * time.Millisecond)
}

// watch is NIC: event waits for what it reports from then on.
func (p *play) watch(a *script.Arguments) {
	if p.events == nil {
		p.events = make(chan via.AsyncError, 64)
	}
	object[*via.NIC](p, a.Words[0]).OnError(func(e via.AsyncError) {
		select {
		case p.events <- e:
		default: // more than the script waits for
		}
	})
}

// event is X TEXT: a NIC that is watched reports that of the end's VI. With ended, any event will do, and it prints how the
// connection has ended.
func (p *play) event(a *script.Arguments) (out string) {
	vi, want, ended := p.vi(a.Words[0]), strings.Join(a.Words[1:], " "), a.Flag("ended")
	p.Until("the event: "+want, func() bool {
		select {
		case e := <-p.events:
			if e.VI != vi {
				p.events <- e // the other end's
				return false
			}
			if ended {
				out = a.Words[0] + ": " + sayEnd(e.Reason())
			}
			return ended || e.Code.String() == want
		default:
			return false
		}
	})
	return out
}
