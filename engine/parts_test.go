package engine_test

import (
	"math/rand/v2"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/engine"
)

// parts is a port that hands frames over while they are being written, around
// one that does not. It checks that the engine keeps the rules.
type parts struct {
	*port
	t testing.TB
	// flights are the frames that have been published, by where they are. Both
	// ends of the wire share them.
	flights map[*byte]*flight
	// pace says how much of a frame of size bytes has arrived when the receiver
	// looks again, of which have had arrived; nil: all that was published.
	pace func(have, size int) int
	// lie, if it answers, is what the receiver is told instead.
	lie func(size int) (n int, aborted, told bool)

	sending *flight
	copied  []byte // what has been published of it
	current *byte  // frame that is being received
	have    int
	aborts  int // by the engine
}

type flight struct {
	n       int // bytes published
	aborted bool
}

// inParts is an option that makes a wire's ends hand frames over in pieces. f
// may change each.
func inParts(f func(p *parts)) option {
	flights := map[*byte]*flight{}
	return func(c *engine.Config, p *port) {
		q := &parts{port: p, t: c.Host.(*node).w.t, flights: flights}
		if f != nil {
			f(q)
		}
		c.Host.(*node).parts = q
		c.Port = q
	}
}

// randomly lets frames arrive in random steps and, with probability cut for each,
// break off.
func randomly(r *rand.Rand, cut *float64) func(p *parts) {
	return func(p *parts) {
		p.pace = func(have, size int) int {
			if r.IntN(3) == 0 {
				return have
			}
			return have + r.IntN(1+size)
		}
		p.lie = func(int) (int, bool, bool) { broken := r.Float64() < *cut; return 0, broken, broken }
	}
}

func (p *parts) Reserve(n int) []byte {
	if p.sending != nil {
		p.t.Fatal("a frame is begun before the one that was published has ended")
	}
	return p.port.Reserve(n)
}

func (p *parts) Publish(n int) {
	switch {
	case p.space == nil || n >= len(p.space):
		p.t.Fatalf("%d bytes of %d are published", n, len(p.space))
	case p.sending == nil:
		p.sending, p.copied = &flight{}, nil
		p.flights[&p.space[0]] = p.sending
		*p.out = append(*p.out, p.space)
	case n < p.sending.n:
		p.t.Fatalf("%d bytes are published after %d", n, p.sending.n)
	}
	p.copied = append(p.copied, p.space[p.sending.n:n]...)
	p.sending.n = n
}

func (p *parts) Commit() {
	if p.sending == nil {
		p.port.Commit()
		return
	}
	must.Same(p.t, p.copied, p.space[:p.sending.n], "what was published has changed")
	p.sending.n = len(p.space)
	p.sending, p.space = nil, nil
}

func (p *parts) Abort() {
	if p.sending == nil {
		p.t.Fatal("nothing to abort")
	}
	p.sending.aborted = true
	p.sending, p.space = nil, nil
	p.aborts++
}

func (p *parts) Receive() []byte {
	b := p.port.Receive()
	if b != nil && &b[0] != p.current {
		p.current, p.have = &b[0], 0
	}
	return b
}

func (p *parts) Arrived() (n int, aborted bool) {
	b := (*p.in)[0]
	if p.lie != nil {
		if n, aborted, told := p.lie(len(b)); told {
			return n, aborted
		}
	}
	there, over := len(b), false
	if f := p.flights[&b[0]]; f != nil {
		there, over = f.n, f.aborted
	}
	if p.pace == nil {
		p.have = there
	} else {
		p.have = min(max(p.pace(p.have, len(b)), 1), there)
	}
	return p.have, over && p.have == there
}

func (p *parts) Release() {
	delete(p.flights, p.current)
	p.current = nil
	p.port.Release()
}
