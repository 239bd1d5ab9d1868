package engine_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/scripttest"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/script"
)

// TestScripts runs the cases in testdata/scripts. README.md there has the commands.
func TestScripts(t *testing.T) {
	scripttest.Run(t, "testdata/scripts", func(t *testing.T) func(words []string) string {
		return newPlay(t).do
	})
}

// play is one run of a case: a world, and the names of what the script has made in it.
type play struct {
	t           *testing.T
	w           *world
	numbers     map[string]uint64 // endpoints, handles, queues, tags, connections and whatever commands return
	ends        map[string]*vi
	rings       map[string]*ring
	doubles     map[string]*channelEnd
	cqs         map[string]*cq
	items       map[string]*item
	order       []*item
	past        []*item // whose names others have
	ids         map[string]pending
	targets     map[string]target
	data        map[string][]byte // messages of channels
	bodies      map[datasheet.Opcode]datasheet.Command
	rules       map[*node][]*rule
	kept        map[*node][][]byte
	seen        map[*node][]string
	events      map[*node]int // shown
	counts      map[string]uint64
	exacts      *[2]*exact
	lenders     *[2]*lender
	x           *impostor
	hostileRDMA *hostileRDMA
	seeds       uint64
	pumps       map[*node]*pump
	since       time.Duration
}

// pending is a command that may not have been answered.
type pending struct {
	n  *node
	id uint16
	op datasheet.Opcode
}

func newPlay(t *testing.T) *play {
	return &play{t: t, numbers: map[string]uint64{}, ends: map[string]*vi{}, rings: map[string]*ring{}, doubles: map[string]*channelEnd{},
		cqs: map[string]*cq{}, items: map[string]*item{}, ids: map[string]pending{}, targets: map[string]target{}, data: map[string][]byte{},
		bodies: map[datasheet.Opcode]datasheet.Command{}, rules: map[*node][]*rule{}, kept: map[*node][][]byte{}, seen: map[*node][]string{},
		events: map[*node]int{}, counts: map[string]uint64{}, pumps: map[*node]*pump{}}
}

// commands are those of scripts, by name.
var commands = map[string]func(p *play, a *arguments) string{}

// also adds commands.
func also(more map[string]func(p *play, a *arguments) string) struct{} {
	maps.Copy(commands, more)
	return struct{}{}
}

var _ = also(map[string]func(p *play, a *arguments) string{
	"world": (*play).world, "settle": (*play).settle, "step": (*play).step, "pass": (*play).pass, "sleep": (*play).sleep,
	"until": (*play).until, "elapsed": (*play).elapsed, "reset": (*play).reset, "counter": (*play).counter, "irqs": (*play).irqs,
	"events": (*play).showEvents, "state": (*play).state, "query": (*play).query, "remember": (*play).remember, "unchanged": (*play).unchanged, "differ": (*play).differ, "value": (*play).showValue, script.End: (*play).end,
})

func (p *play) do(words []string) string {
	p.t.Helper()
	f, known := commands[words[0]]
	must.Be(p.t, known, true, "there is no command %q", words[0])
	if p.w == nil && words[0] != "world" && words[0] != "impostor" && words[0] != "hostile" && words[0] != script.End {
		p.world(newArguments(p, nil))
	}
	return f(p, newArguments(p, words[1:]))
}

// node returns a or b.
func (p *play) node(name string) *node {
	p.t.Helper()
	switch name {
	case "a":
		return p.w.a
	case "b":
		return p.w.b
	}
	p.t.Fatalf("%q is not a or b", name)
	return nil
}

func (p *play) nameOf(n *node) string {
	if n == p.w.a {
		return "a"
	}
	return "b"
}

// nodes returns those that are named, or both.
func (p *play) nodes(names []string) []*node {
	if len(names) == 0 {
		return []*node{p.w.a, p.w.b}
	}
	var all []*node
	for _, name := range names {
		all = append(all, p.node(name))
	}
	return all
}

func (p *play) settle(a *arguments) string {
	switch nodes := p.nodes(a.Words); len(nodes) {
	case 1:
		p.w.settleOnly(nodes[0])
	default:
		p.w.settle()
	}
	return ""
}

// step steps nodes in turn, so many times.
func (p *play) step(a *arguments) string {
	times := 1
	if n := len(a.Words); n > 0 {
		if i, err := strconv.Atoi(a.Words[n-1]); err == nil {
			times, a.Words = i, a.Words[:n-1]
		}
	}
	for range times {
		for _, n := range p.nodes(a.Words) {
			n.step()
		}
	}
	return ""
}

func (p *play) duration(s string) time.Duration {
	p.t.Helper()
	d := must.Get(time.ParseDuration(s))(p.t)
	return d
}

// pass lets time pass, by steps of a millisecond, in which nodes run.
func (p *play) pass(a *arguments) string {
	nodes := p.nodes(a.Words[1:])
	if slices.Contains(a.Words[1:], "nobody") {
		nodes = nil
	}
	p.w.pass(p.duration(a.Words[0]), nodes...)
	return ""
}

func (p *play) sleep(a *arguments) string {
	p.w.now += p.duration(a.Words[0])
	return ""
}

// until runs both nodes, or alone=NODE, until something is so.
func (p *play) until(a *arguments) string {
	p.t.Helper()
	var done func() bool
	rest := a.Words[1:]
	switch a.Words[0] {
	case "done":
		items := p.all(rest)
		done = func() bool {
			for _, i := range items {
				if !i.status().Done() {
					return false
				}
			}
			return true
		}
	case "event":
		n := p.node(rest[0])
		done = func() bool { return len(n.events) > p.events[n] }
	case "state":
		done = func() bool { return p.ends[rest[0]].state().String() == strings.Join(rest[1:], " ") }
	case "left":
		done = func() bool { return p.ends[rest[0]].state() != datasheet.StateConnected }
	case "counter":
		n, c := p.node(rest[0]), p.counterNamed(rest[1])
		least := uint64(1)
		if len(rest) > 2 {
			least = p.value(rest[2])
		}
		least += p.counts[rest[0]+c.String()]
		done = func() bool { return n.e.Counter(c) >= least }
	case "irq":
		n, vector, least := p.node(rest[0]), uint16(p.value(rest[1])), int(p.value(rest[2]))
		done = func() bool { return n.irqs[vector] >= least }
	case "pdus":
		done = func() bool { return uint64(p.doubles[rest[0]].received().PDUs) >= p.value(rest[1]) }
	case "ended":
		done = func() bool {
			s := p.doubles[rest[0]].status()
			return uint64(s.Ended[0]+s.Ended[1]) >= p.value(rest[1])
		}
	case "time":
		end := p.w.now + p.duration(rest[0])
		done = func() bool { return p.w.now >= end }
	default:
		p.t.Fatalf("nothing is known of %q", a.Words[0])
	}
	if name, one := a.Option("alone"); one {
		for limit := p.w.now + time.Hour; !done() && p.w.now < limit; p.w.now += time.Millisecond {
			p.node(name).step()
		}
	}
	p.w.run(strings.Join(a.Words, " "), done)
	return ""
}

// elapsed says how much time has passed since the last one.
func (p *play) elapsed(a *arguments) string {
	d := p.w.now - p.since
	p.since = p.w.now
	if a.Flag("reset") {
		return ""
	}
	return "elapsed: " + d.String()
}

func (p *play) reset(a *arguments) string {
	for _, n := range p.nodes(a.Words) {
		n.e.Reset()
	}
	return ""
}

func (p *play) counterNamed(name string) datasheet.Counter {
	p.t.Helper()
	for c := range datasheet.CounterCount {
		if c.String() == name {
			return c
		}
	}
	p.t.Fatalf("there is no counter %q", name)
	return 0
}

// counter says by how much counters of a node have gone up since it did last.
func (p *play) counter(a *arguments) string {
	n := p.node(a.Words[0])
	silent := a.Flag("reset")
	var parts []string
	for _, name := range a.Words[1:] {
		if silent && name == "reset" {
			continue
		}
		c := p.counterNamed(name)
		key := a.Words[0] + c.String()
		now := n.e.Counter(c)
		parts = append(parts, fmt.Sprintf("%s %d", name, int64(now-p.counts[key])))
		p.counts[key] = now
	}
	if silent {
		return ""
	}
	return a.Words[0] + ": " + strings.Join(parts, ", ")
}

// irqs is: irqs NODE [new]. It shows the interrupts of each vector, or those since it did last.
func (p *play) irqs(a *arguments) string {
	n := p.node(a.Words[0])
	var parts []string
	for _, v := range slices.Sorted(maps.Keys(n.irqs)) {
		key := fmt.Sprintf("%s vector %d", a.Words[0], v)
		count := n.irqs[v]
		if slices.Contains(a.Words, "new") {
			count -= int(p.counts[key])
		}
		p.counts[key] = uint64(n.irqs[v])
		parts = append(parts, fmt.Sprintf("vector %d: %d", v, count))
	}
	if parts == nil {
		parts = []string{"none"}
	}
	return a.Words[0] + " interrupts: " + strings.Join(parts, ", ")
}

// endName names an endpoint of a node.
func (p *play) endName(n *node, id uint32) string {
	for _, name := range slices.Sorted(maps.Keys(p.ends)) {
		if v := p.ends[name]; v.n == n && v.id == id {
			return name
		}
	}
	return fmt.Sprintf("endpoint %d", id)
}

// eventsOf describes the events of a node that have not been shown.
func (p *play) eventsOf(n *node) (lines string) {
	for _, e := range n.events[p.events[n]:] {
		line := p.nameOf(n) + " is told: " + e.Code.String()
		if e.Endpoint != 0 || e.Code == datasheet.EventConnectionLost {
			line += ", " + p.endName(n, e.Endpoint)
		}
		switch e.Code {
		case datasheet.EventConnectionLost:
			line += ", " + datasheet.Result(e.Detail).String()
		case datasheet.EventCQOverrun:
			line += fmt.Sprintf(", queue %d", e.CQ)
		case datasheet.EventVIOverrun:
			line += fmt.Sprintf(", %d", e.Detail)
		}
		lines += line + "\n"
	}
	p.events[n] = len(n.events)
	return lines
}

func (p *play) showEvents(a *arguments) (lines string) {
	for _, n := range p.nodes(a.Words) {
		lines += p.eventsOf(n)
	}
	return lines
}

func (p *play) state(a *arguments) string {
	var parts []string
	for _, name := range a.Words {
		parts = append(parts, name+" "+p.stateOf(p.endpoint(name)))
	}
	return strings.Join(parts, ", ")
}

func (p *play) stateOf(v *vi) string {
	r := v.n.wait(start(v.n, datasheet.OpQueryEndpoint, datasheet.EndpointBody{Endpoint: v.id}))
	if r.Result != datasheet.ResultSuccess {
		return "gone"
	}
	return datasheet.Reply[datasheet.EndpointReply](&r).State.String()
}

// query says what a NIC knows of an endpoint's queues.
func (p *play) query(a *arguments) string {
	v := p.endpoint(a.Words[0])
	q := v.query()
	return fmt.Sprintf("%s: %v, %d of %d sends and %d of %d receives completed", a.Words[0], q.State,
		q.SendCompleted, q.SendProducer, q.RecvCompleted, q.RecvProducer)
}

// remember is: remember NODE [FROM BYTES]. It keeps what a node's memory holds, or its device memory there.
func (p *play) remember(a *arguments) string {
	p.data["of "+a.Words[0]] = slices.Clone(p.memoryOf(a.Words))
	return ""
}

// unchanged is: unchanged NODE [FROM BYTES]. It says where memory is not as remembered.
func (p *play) unchanged(a *arguments) string {
	for i, b := range p.memoryOf(a.Words) {
		if old := p.data["of "+a.Words[0]]; old[i] != b {
			return fmt.Sprintf("memory of %s: byte %d was %#x, it is %#x", a.Words[0], i, old[i], b)
		}
	}
	return "memory of " + a.Words[0] + ": as it was"
}

func (p *play) memoryOf(words []string) []byte {
	n := p.node(words[0])
	if len(words) == 1 {
		return n.mem
	}
	return n.sram[p.value(words[1]):][:p.value(words[2])]
}

// end shows what has not been shown: statuses of descriptors, events, and states of VIs.
func (p *play) end(*arguments) string {
	if p.w == nil {
		return ""
	}
	var left []*item
	for _, i := range p.order {
		if i.text() != i.shown {
			left = append(left, i)
		}
	}
	lines := p.describe(left) + p.eventsOf(p.w.a) + p.eventsOf(p.w.b)
	by := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(p.ends)) {
		st := p.stateOf(p.ends[name])
		by[st] = append(by[st], name)
	}
	for _, st := range slices.Sorted(maps.Keys(by)) {
		lines += st + ": " + script.Fold(by[st]) + "\n"
	}
	return lines
}

// differ checks that numbers are not alike.
func (p *play) differ(a *arguments) string {
	for i, x := range a.Words {
		for _, y := range a.Words[:i] {
			if p.value(x) == p.value(y) {
				return x + " and " + y + " are alike"
			}
		}
	}
	return ""
}

func (p *play) showValue(a *arguments) string {
	return fmt.Sprintf("%s: %d", a.Words[0], p.value(a.Words[0]))
}
