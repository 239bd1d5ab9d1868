package conform

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/internal/script"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// openRings is X Y [plain] FIELD=...: it connects rings of a and b on which nothing is lost. plain ones have no options.
func (p *play) openRings(a *script.Arguments) {
	o := reliableRing()
	if a.Flag("plain") {
		o = ring.Options{}
	}
	p.change(reflect.ValueOf(&o).Elem(), a)
	x, y := p.rings(o)
	p.names[a.Words[0]], p.names[a.Words[1]] = reflect.ValueOf(x), reflect.ValueOf(y)
}

// put is RING [MEMORY LENGTH] [tag=N] [done=HANDLER]: it sends a message, with the first bytes of memory.
func (p *play) put(a *script.Arguments) {
	r := object[*ring.Ring](p, a.Words[0])
	e := p.getEntry(r)
	copy(Must(e.Reserve(len("message")))(p), "message")
	if tag, tagged := p.option(a, "tag"); tagged {
		OK(p, e.SetTag(uint32(tag)))
	}
	var done func(error)
	if name, ok := a.Option("done"); ok {
		done = p.handler(reflect.TypeOf(done), name).Interface().(func(error))
	}
	var f ring.Frame
	if len(a.Words) > 1 {
		f = ring.Frame{Memory: object[*via.Memory](p, a.Words[1]), Length: int(p.number(a.Words[2]))}
	}
	OK(p, e.Attach(f, done))
	OK(p, r.ReleaseSend(e))
}

// get is NAME RING [TEXT]: it takes the next message, which begins with the text, and prints what came with it.
func (p *play) get(a *script.Arguments) string {
	e := p.receiveMessage(object[*ring.Ring](p, a.Words[1]), strings.Join(a.Words[2:], ""))
	p.names[a.Words[0]] = reflect.ValueOf(e)
	line := fmt.Sprintf("%s: %d bytes", a.Words[1], e.Length())
	if e.Placed() {
		line += ", placed"
	}
	if n := e.Discarded(); n > 0 {
		line += fmt.Sprintf(", %d discarded", n)
	}
	if tag, tagged := e.Tag(); tagged {
		line += fmt.Sprintf(", tag %#x", tag)
	}
	return line
}

// writeEntry is ENTRY TEXT.
func (p *play) writeEntry(a *script.Arguments) {
	copy(Must(object[*ring.Entry](p, a.Words[0]).Reserve(len(a.Words[1])))(p), a.Words[1])
}

// settleRing is RING: it waits until all is sent.
func (p *play) settleRing(a *script.Arguments) {
	p.settle(object[*ring.Ring](p, a.Words[0]))
}

// openChannels is X Y FIELD=...: it connects channels of a and b.
func (p *play) openChannels(a *script.Arguments) {
	var o channel.Options
	p.change(reflect.ValueOf(&o).Elem(), a)
	x, y := p.channels(o)
	p.names[a.Words[0]], p.names[a.Words[1]] = reflect.ValueOf(x), reflect.ValueOf(y)
}

// deliverWords is X Y PRIORITY START WORDS: it sends so many words until they have come.
func (p *play) deliverWords(a *script.Arguments) {
	x, y := object[*channel.Channel](p, a.Words[0]), object[*channel.Channel](p, a.Words[1])
	p.releasePDU(y, p.deliver(x, y, channel.Priority(p.number(a.Words[2])), int(p.number(a.Words[3])), p.words(int(p.number(a.Words[4])))))
}

// connectionOver is CHANNEL: the connection has ended, one way or another.
func (p *play) connectionOver(a *script.Arguments) {
	p.wantOver("the other end was closed", p.untilOver(object[*channel.Channel](p, a.Words[0])))
}
