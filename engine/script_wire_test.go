package engine_test

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/script"
)

var _ = also(map[string]func(p *play, a *arguments) string{
	"wire": (*play).wire, "frames": (*play).frames, "release": (*play).release, "room": (*play).room, "impostor": (*play).impostor,
	"frame": (*play).frame, "part": (*play).framePart, "serve": (*play).serve, "raw": (*play).raw, "rest": (*play).rest, "plug": (*play).plug, "broken": (*play).broken, "lent": (*play).lent,
})

// rule decides about some frames that a node sends.
type rule struct {
	types  []datasheet.FrameType // none for all
	action string
	left   int // times that it applies; negative for always
	skip   int // frames that it lets go before
	when   []script.Change
	fields []string
	set    []script.Change
	number int
	held   [][]byte
}

// wire is: wire NODE clear, or wire NODE ACTION TYPE... [once] [skip=N] [when.FIELD=VALUE] [FIELD=VALUE]. Rules apply in
// the order in which they are made. Actions are drop, twice, hold, keep, set, cut, trim and see. hold waits until another
// frame has gone, keep until release. cut takes by=N bytes off, trim leaves them. see notes fields, for frames.
func (p *play) wire(a *arguments) string {
	p.t.Helper()
	for _, n := range p.nodes([]string{a.Words[0]}) {
		if a.Words[1] == "clear" {
			p.rules[n] = nil
			n.port.spoil = nil
			return ""
		}
		r := &rule{action: a.Words[1], left: -1}
		if a.Flag("once") {
			r.left = 1
		}
		r.skip = int(a.number("skip", 0))
		r.left = int(a.number("times", uint64(r.left)))
		r.number = int(a.number("by", 0))
		for _, w := range a.Words[2:] {
			if t, ok := frameTypes[w]; ok {
				r.types = append(r.types, t)
			} else if w != "any" {
				r.fields = append(r.fields, w)
			}
		}
		for _, c := range a.Changes {
			if path, isWhen := strings.CutPrefix(c.Path, "when."); isWhen {
				c.Path = path
				r.when = append(r.when, c)
			} else {
				r.set = append(r.set, c)
			}
		}
		p.rules[n] = append(p.rules[n], r)
		n.port.spoil = func(f []byte) [][]byte { return p.spoil(n, f) }
	}
	return ""
}

// fits reports whether a rule is about a frame.
func (p *play) fits(r *rule, f []byte) bool {
	h := datasheet.HeaderAt(f)
	if r.left == 0 || len(r.types) > 0 && !slices.Contains(r.types, h.Type) {
		return false
	}
	for _, c := range r.when {
		if c.Path == "longer" {
			if uint64(len(f)) <= p.value(c.Value) {
				return false
			}
			continue
		}
		got := p.part(f, c.Path).Uint()
		if want := p.value(c.Value); c.Op == "=" && got != want || c.Op == "&=" && got&want == 0 || c.Op == "+=" && got <= want {
			return false
		}
	}
	if r.skip > 0 {
		r.skip--
		return false
	}
	r.left--
	return true
}

// part is a field of a frame's header. What stands behind that begins with a word: body.FIELD of connect frames,
// ext.FIELD of RDMA, cells.N.FIELD, and payload.N for a byte.
func (p *play) part(f []byte, path string) reflect.Value {
	root, rest, _ := strings.Cut(path, ".")
	switch behind := f[datasheet.HeaderSize:]; root {
	case "body":
		return p.field(reflect.ValueOf(datasheet.ConnectBodyAt(behind)).Elem(), rest)
	case "ext":
		return p.field(reflect.ValueOf(datasheet.ExtensionAt(behind)).Elem(), rest)
	case "cells":
		return p.field(reflect.ValueOf(datasheet.CellsAt(behind)), rest)
	case "payload":
		i, err := strconv.Atoi(rest)
		if err != nil || i >= len(behind) {
			p.t.Fatalf("no byte %q in a payload of %d", rest, len(behind))
		}
		return reflect.ValueOf(behind).Index(i)
	}
	return p.field(reflect.ValueOf(datasheet.HeaderAt(f)).Elem(), path)
}

func (p *play) spoil(n *node, f []byte) (out [][]byte) {
	out = [][]byte{f}
	for _, r := range p.rules[n] {
		if len(out) == 0 {
			return nil
		}
		if !p.fits(r, f) {
			if r.action == "hold" {
				out, r.held = append(out, r.held...), nil
			}
			continue
		}
		switch r.action {
		case "drop":
			return nil
		case "twice":
			out = append(out, append(alignedBytes(0), f...))
		case "hold":
			r.held, out = append(r.held, f), nil
		case "keep":
			p.kept[n], out = append(p.kept[n], append(alignedBytes(0), f...)), nil
		case "copy":
			p.kept[n] = append(p.kept[n], append(alignedBytes(0), f...))
		case "set":
			for _, c := range r.set {
				p.set(p.part(f, c.Path), c)
			}
		case "head":
			p.rehead(r, f)
		case "cut":
			f = f[:len(f)-r.number]
			out[0] = f
		case "trim":
			f = f[:min(len(f), r.number)]
			out[0] = f
		case "see":
			line := typeName(datasheet.HeaderAt(f).Type)
			for _, name := range r.fields {
				if name == "len" {
					line += fmt.Sprintf(" %d bytes", len(f))
					continue
				}
				line += " " + name + " " + p.show(p.part(f, name))
			}
			p.seen[n] = append(p.seen[n], line)
		default:
			p.t.Fatalf("there is no action %q", r.action)
		}
	}
	return out
}

// frames shows what see has seen, and "count" how many of each.
func (p *play) frames(a *arguments) string {
	n := p.node(a.Words[0])
	seen := p.seen[n]
	p.seen[n] = nil
	if a.Flag("reset") {
		return ""
	}
	if len(seen) == 0 {
		return a.Words[0] + " has sent none"
	}
	lines := ""
	for i := 0; i < len(seen); {
		j := i + 1
		for j < len(seen) && seen[j] == seen[i] {
			j++
		}
		lines += a.Words[0] + " has sent: " + seen[i]
		if j-i > 1 {
			lines += fmt.Sprintf(", %d times", j-i)
		}
		lines += "\n"
		i = j
	}
	return lines
}

// release lets the frames go that were kept. reverse has the last one go first.
func (p *play) release(a *arguments) string {
	n := p.node(a.Words[0])
	kept := p.kept[n]
	p.kept[n] = nil
	if a.Flag("reverse") {
		slices.Reverse(kept)
	}
	for _, f := range kept {
		for _, c := range a.Changes {
			p.set(p.part(f, c.Path), c)
		}
		*n.port.out = append(*n.port.out, f)
		if p.exacts != nil {
			p.exacts[0].wire.sent[n.port.out]++
		}
	}
	return ""
}

// room is: room NODE N. The node's wire holds so many frames.
func (p *play) room(a *arguments) string {
	n := must.Get(strconv.Atoi(a.Words[1]))(p.t)
	p.node(a.Words[0]).port.room = n
	return ""
}

// impostor is pair with a peer of p that does not keep the rules: frame sends what it likes.
func (p *play) impostor(a *arguments) string {
	p.x = newImpostor(p.t, func(n *node, b *datasheet.CreateEndpointBody) {
		p.w = n.w
		for _, c := range a.Changes {
			if name, only := strings.CutPrefix(c.Path, "p."); only {
				if c.Path = name; n == n.w.a {
					continue
				}
			}
			p.change(b, c)
		}
	}, p.options(a.Words)...)
	p.w = p.x.w
	for _, n := range p.nodes(nil) {
		p.numbers[p.nameOf(n)+".mem"] = uint64(map[*node]*vi{p.w.a: p.x.v, p.w.b: p.x.p}[n].handle)
	}
	p.addEnd("v", p.x.v)
	p.addEnd("p", p.x.p)
	return ""
}

// frame is: frame [TEXT or N] FIELD=VALUE.... It arrives at node b. Its payload is TEXT, or N bytes of 7. The other
// fields are those of a sound data frame.
func (p *play) frame(a *arguments) string {
	p.t.Helper()
	payload := []byte(strings.Join(a.Words, " "))
	if n, err := strconv.Atoi(string(payload)); err == nil {
		payload = slices.Repeat([]byte{7}, n)
	}
	kind, _ := a.Option("Type")
	header := datasheet.HeaderSize
	h := p.x.good
	if kind != "" {
		if h.Type = frameTypes[kind]; h.Type.RDMA() {
			header += datasheet.ExtensionSize
		}
	}
	b := alignedBytes(header + len(payload))
	copy(b[header:], payload)
	h.Length = uint16(len(payload))
	*datasheet.HeaderAt(b) = h
	for _, c := range a.Changes {
		p.set(p.part(b, c.Path), c)
	}
	p.x.arrive(b)
	return ""
}

// framePart is: part one|first|last|middle MESSAGE EXTENT OFFSET [TEXT or N] [psn=N]. A data frame of the impostor's arrives.
func (p *play) framePart(a *arguments) string {
	p.t.Helper()
	flags := map[string]datasheet.FrameFlags{"one": one, "first": datasheet.FrameFirst, "last": datasheet.FrameLast, "middle": 0}[a.Words[0]]
	if a.Flag("immediate") {
		flags |= datasheet.FrameImmediate
	}
	payload := []byte(strings.Join(a.Words[4:], " "))
	if n, err := strconv.Atoi(string(payload)); err == nil {
		payload = slices.Repeat([]byte{7}, n)
	}
	number := func(i int) uint32 { return uint32(p.value(a.Words[i])) }
	p.x.send(uint32(a.number("psn", 0)), flags, number(1), number(2), number(3), payload)
	return ""
}

// serve checks that the impostor's VIs can be disconnected, which ends all receives, and that the NICs go on.
func (p *play) serve(*arguments) string {
	p.x.w.b.port.spoil = nil
	p.x.mustServe(p.t)
	delete(p.ends, "p")
	return ""
}

// raw is: raw NODE N. A frame of N bytes that is no frame of ours arrives at the node.
func (p *play) raw(a *arguments) string {
	n, size := p.node(a.Words[0]), int(p.value(a.Words[1]))
	f := alignedBytes(size)
	copy(f, rawFrame(station(n), min(size, 2048), 1))
	*n.port.in = append(*n.port.in, f)
	return ""
}

func (p *play) rest(a *arguments) string {
	p.node(a.Words[0]).e.BeforeIdle()
	return ""
}

// plug is: plug NODE out, or in.
func (p *play) plug(a *arguments) string {
	i := 0
	if a.Words[0] == "b" {
		i = 1
	}
	p.exacts[i].pulled = a.Words[1] == "out"
	return ""
}

func (p *play) broken(*arguments) string {
	return fmt.Sprintf("the wire was broken %d times", p.exacts[0].wire.breaks)
}

func (p *play) lent(*arguments) string {
	x, y := p.lenders[0], p.lenders[1]
	return fmt.Sprintf("lent: %d, borrowed: %d, revoked: %d, void: %d", x.lent, y.got, x.revokes, y.void)
}
