package sealed_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/wire/internal/sealed"
)

// man sits between the ends and does what such a man can do. He has all that ever
// passed.
type man struct {
	rand *rand.Rand
	seen []parcel
}

// meddle says what arrives in place of a datagram.
func (m *man) meddle(p parcel) []parcel {
	if len(m.seen) < 4000 {
		m.seen = append(m.seen, p)
	} else {
		m.seen[m.rand.IntN(len(m.seen))] = p
	}
	old := m.seen[m.rand.IntN(len(m.seen))]
	c := parcel{p.from, p.to, slices.Clone(p.bytes)}
	switch m.rand.IntN(20) {
	case 0: // drop
		return nil
	case 1: // repeat
		return []parcel{p, p, p}
	case 2: // late, and what was before in its place
		return []parcel{old}
	case 3, 4:
		return []parcel{old, p, old}
	case 5: // change a bit
		c.bytes[m.rand.IntN(len(c.bytes))] ^= 1 << m.rand.IntN(8)
		return []parcel{c}
	case 6: // cut off
		c.bytes = c.bytes[:m.rand.IntN(len(c.bytes))]
		return []parcel{c, p}
	case 7: // lengthen
		c.bytes = append(c.bytes, byte(m.rand.Uint32()))
		return []parcel{c, p}
	case 8: // the header of another
		copy(c.bytes, old.bytes[:16])
		return []parcel{c, p}
	case 9: // the session of another
		copy(c.bytes[8:12], old.bytes[8:12])
		return []parcel{c, p}
	case 10: // the rest of another
		copy(c.bytes[16:], old.bytes[16:])
		return []parcel{c, p}
	case 11: // back to the sender
		return []parcel{{p.to, p.from, p.bytes}, p}
	case 12: // as if from the other
		return []parcel{{old.to, old.from, old.bytes}, p}
	case 13: // from or to somebody else
		c.from = address(byte(1 + m.rand.IntN(4)))
		return []parcel{c, p}
	case 14:
		c.to = address(byte(1 + m.rand.IntN(3)))
		return []parcel{c, p}
	case 15: // another number
		binary.LittleEndian.PutUint64(c.bytes, m.rand.Uint64()>>m.rand.IntN(64))
		return []parcel{c, p}
	}
	return []parcel{p}
}

// TestManInTheMiddle: of what a man in the middle does nothing false is delivered,
// nothing twice, and frames pass again when he is gone. Meanwhile keys are renewed
// and ends start anew.
func TestManInTheMiddle(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			n := newNetwork(t)
			m := &man{rand: rand.New(rand.NewPCG(seed, 1))}
			n.man = m.meddle
			limits := sealed.Limits{Frames: 40, Age: 3 * time.Second}
			hosts := [][]byte{1: {2}, 2: {1}, 3: {1, 2}}
			serial := uint64(0)
			sent := map[string]byte{} // to whom
			start := func(host byte) *end { return n.start(host, "a", limits, hosts[host]...) }
			for host := byte(1); host <= 3; host++ {
				start(host)
			}
			delivered := 0
			collect := func(e *end, host byte) {
				for _, f := range e.got {
					to, ok := sent[string(f)]
					must.Be(t, ok, true, "host %d got a frame that was not sent, or twice", host)
					// With one key for all, who has the key can be led to another who has it, but
					// a frame does not come back to its sender.
					must.Be(t, f[0] == host, false, "a frame came back to host %d, from %d to %d", host, f[0], to)
					delete(sent, string(f))
					delivered++
				}
				e.got = nil
			}
			for range 3000 {
				from := byte(1 + m.rand.IntN(3))
				to := byte(1 + m.rand.IntN(2))
				if to == from {
					to = 3 - from
				}
				serial++
				f := frame(from, serial)
				sent[string(f)] = to
				n.ends[address(from)].send(to, f)
				if m.rand.IntN(400) == 0 {
					host := byte(1 + m.rand.IntN(3))
					collect(n.ends[address(host)], host)
					start(host)
				}
				n.pass(time.Duration(m.rand.IntN(2)) * 10 * time.Millisecond)
				for host := byte(1); host <= 3; host++ {
					collect(n.ends[address(host)], host)
				}
			}
			should.Be(t, delivered < 500, false, "only %d frames of 3000 were delivered", delivered)
			n.man = nil
			n.pass(30 * time.Second)
			n.converse(n.ends[address(1)], n.ends[address(2)])
			n.converse(n.ends[address(3)], n.ends[address(2)])
		})
	}
}

// TestReplayOfEverything: all that two ends have ever sent, once more, to whom it
// was for and to who sent it, neither delivers a frame nor disturbs the session.
func TestReplayOfEverything(t *testing.T) {
	n := newNetwork(t)
	var seen []parcel
	n.man = func(p parcel) []parcel {
		seen = append(seen, p)
		return []parcel{p}
	}
	var a, b *end
	for range 3 {
		a, b = n.start(1, "a", sealed.Limits{Frames: 20}, 2), n.start(2, "a", sealed.Limits{Frames: 20}, 1)
		for range 30 {
			n.converse(a, b)
		}
	}
	n.man = nil
	a.got, b.got = nil, nil
	began := a.tunnel.Stats().Sessions + b.tunnel.Stats().Sessions
	for _, p := range seen {
		n.ends[p.to].take(p.bytes, p.from)
		n.ends[p.from].take(p.bytes, p.to)
		n.ends[p.from].take(p.bytes, p.from)
		n.settle()
	}
	must.Be(t, len(a.got)+len(b.got), 0, "a frame was delivered once more")
	if now := a.tunnel.Stats().Sessions + b.tunnel.Stats().Sessions; now != began {
		t.Errorf("%d sessions began from what was repeated", now-began)
	}
	a.send(2, frame(1, 7))
	b.send(1, frame(2, 7))
	n.settle()
	should.Be(t, len(a.got) != 1 || len(b.got) != 1, false, "the session does not work any more")
	if c := b.tunnel.Stats(); c.Replayed == 0 || c.Stale == 0 {
		t.Errorf("counts %+v", c)
	}
}

// TestReflection: an end whose datagrams all come back to it does not talk to itself.
func TestReflection(t *testing.T) {
	n := newNetwork(t)
	n.man = func(p parcel) []parcel { return []parcel{{p.to, p.from, p.bytes}} }
	a := n.start(1, "a", sealed.Limits{}, 2)
	for range 100 {
		a.send(2, frame(1, 0))
		n.pass(100 * time.Millisecond)
	}
	if c := a.tunnel.Stats(); len(a.got) != 0 || c.Sessions != 0 || c.BadHandshakes == 0 {
		t.Errorf("%d frames came back, %+v", len(a.got), c)
	}
}
