package engine_test

import (
	"slices"
	"testing"

	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// exact is an end of the world's wire that loses nothing, and says so.
type exact struct {
	*port
	wire *exactWire
	// pulled: nothing comes, and nothing can be sent.
	pulled bool
	taken  uint32
}

// exactWire is what both ends of such a wire have in common. Positions are counts of
// frames, by the queue that they are in.
type exactWire struct {
	number         uint32
	sent, released map[*[][]byte]uint32
	breaks         int
	given, asked   map[creditOf]uint32
	framesOnly     bool // it has no words for credit
	shorts         map[*byte]shortFrame
}

// creditOf names the credit of a connection in one direction.
type creditOf struct {
	queue         *[][]byte
	endpoint, key uint32
}

func (p *exact) Reserve(n int) []byte {
	if p.pulled {
		return nil
	}
	return p.port.Reserve(n)
}

func (p *exact) Commit() {
	before := len(*p.out)
	p.port.Commit()
	p.wire.sent[p.out] += uint32(len(*p.out) - before)
}

func (p *exact) Receive() []byte {
	if p.pulled {
		return nil
	}
	f := p.port.Receive()
	if f == nil {
		p.taken = p.wire.released[p.out]
	}
	return f
}

func (p *exact) Release() {
	p.port.Release()
	p.wire.released[p.in]++
}

func (p *exact) Free()         {}
func (p *exact) Wire() uint32  { return p.wire.number }
func (p *exact) Mark() uint32  { return p.wire.sent[p.out] }
func (p *exact) Taken() uint32 { return p.taken }
func (p *exact) AwaitTaken()   {}
func (p *exact) GiveCredit(endpoint, key, credit uint32) (asked uint32, asks, ok bool) {
	if p.wire.framesOnly {
		return 0, false, false
	}
	p.wire.given[creditOf{p.in, endpoint, key}] = credit
	asked, asks = p.wire.asked[creditOf{p.in, endpoint, key}]
	return asked, asks, true
}

func (p *exact) TakeCredit(endpoint, key, known uint32) uint32 {
	if given, ok := p.wire.given[creditOf{p.out, endpoint, key}]; ok && int32(given-known) > 0 {
		return given
	}
	p.wire.asked[creditOf{p.out, endpoint, key}] = known
	return known
}

func (p *exact) Break() { p.wire.number, p.wire.breaks = p.wire.number+1, p.wire.breaks+1 }

// It has no room for short frames.
func (p *exact) Put(uint64, datasheet.ShortBeside, []byte, bool) (uint32, bool) { return 0, false }
func (p *exact) PutPair(uint64, datasheet.ShortBeside, []byte, []byte, bool) (uint32, bool) {
	return 0, false
}
func (p *exact) Next() ([]byte, uint64, datasheet.ShortBeside, engine.Found) {
	return nil, 0, 0, engine.FoundOther
}
func (p *exact) Pass(bool)        {}
func (p *exact) Look(bool) uint32 { return p.wire.released[p.out] }

// exactly is an option that makes the world's wire one that loses nothing. Its ends are
// in ends then.
func exactly(ends *[2]*exact) option {
	w := &exactWire{number: 0xfffffff0, given: map[creditOf]uint32{}, asked: map[creditOf]uint32{}, sent: map[*[][]byte]uint32{}, released: map[*[][]byte]uint32{}}
	i := 0
	return func(c *engine.Config, p *port) {
		// Positions wrap.
		w.sent[p.out], w.released[p.out] = 0xfffffff8, 0xfffffff8
		e := &exact{port: p, wire: w, taken: 0xfffffff8}
		if ends != nil {
			ends[i] = e
			i++
		}
		c.Port = e
	}
}

func (e *exact) LinkUp() bool { return !e.pulled }

// exactPair is pair over a wire that loses nothing.
func exactPair(t testing.TB, change func(*datasheet.CreateEndpointBody), options ...option) (w *world, v, p *vi, ends *[2]*exact) {
	t.Helper()
	ends = new([2]*exact)
	w, v, p = pair(t, change, append(options, exactly(ends))...)
	return w, v, p, ends
}

// acknowledges reports whether p acknowledges messages of v that ask it for nothing else:
// with receives for all of them there beforehand, a peer on a wire that loses nothing
// sends nothing.
func acknowledges(t testing.TB, v, p *vi) bool {
	t.Helper()
	m := newBatch(v, p, slices.Repeat([]int{100}, 16)...)
	v.n.w.settle()
	before := p.n.e.Counter(datasheet.CounterFramesSent)
	m.post()
	m.mustArrive()
	v.n.w.settle()
	return p.n.e.Counter(datasheet.CounterFramesSent) != before
}
