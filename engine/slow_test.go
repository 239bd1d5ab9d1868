package engine_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// faults are the probabilities of what becomes of a frame.
type faults struct {
	loss      float64 // does not arrive
	duplicate float64 // arrives twice
	reorder   float64 // takes up to late longer, so that others overtake it
	corrupt   float64 // arrives with one bit inverted
	late      time.Duration
}

// wireDelay is how long a frame takes that nothing happens to.
const wireDelay = 50 * time.Microsecond

// slow is an end of a wire whose frames take some of the world's time.
type slow struct {
	*port
	now    *time.Duration
	faults faults // of what is sent here
	r      *rand.Rand
	under  []delayed // way, the next to arrive first
	peer   *slow
}

// delayed is a frame that is under way.
type delayed struct {
	frame []byte
	at    time.Duration
}

func (s *slow) Commit() {
	f := s.space
	s.space = nil
	frames := [][]byte{f}
	if s.spoil != nil {
		frames = s.spoil(f)
	}
	for _, f := range frames {
		if s.r.Float64() < s.faults.loss {
			continue
		}
		if s.r.Float64() < s.faults.corrupt {
			f[s.r.IntN(len(f))] ^= 1 << s.r.IntN(8)
		}
		s.send(f)
		if s.r.Float64() < s.faults.duplicate {
			s.send(append(alignedBytes(0), f...))
		}
	}
}

func (s *slow) send(f []byte) {
	at := *s.now + wireDelay
	if s.r.Float64() < s.faults.reorder {
		at += time.Duration(s.r.Int64N(int64(s.faults.late)))
	}
	i, _ := slices.BinarySearchFunc(s.under, at, func(f delayed, t time.Duration) int {
		if f.at <= t {
			return -1
		}
		return 1
	})
	s.under = slices.Insert(s.under, i, delayed{f, at})
}

func (s *slow) Receive() []byte {
	for len(s.peer.under) > 0 && s.peer.under[0].at <= *s.now {
		*s.in = append(*s.in, s.peer.under[0].frame)
		s.peer.under = s.peer.under[1:]
	}
	return s.port.Receive()
}

// slowPair is a world with one connected VI at each end of a slow wire, with faults in
// each direction. Its time passes in small steps.
func slowPair(t testing.TB, seed uint64, to, back faults, level datasheet.Reliability) (w *world, v, p *vi) {
	t.Helper()
	var ends []*slow
	w = newWorld(t, memory(4<<20), func(c *engine.Config, p *port) {
		p.checksum = true
		ends = append(ends, &slow{port: p, r: rand.New(rand.NewPCG(seed, uint64(c.MAC[5])))})
		c.Port = ends[len(ends)-1]
	})
	w.idle = 10 * time.Microsecond
	for i, f := range []faults{to, back} {
		ends[i].now, ends[i].faults, ends[i].peer = &w.now, f, ends[1-i]
	}
	change := func(b *datasheet.CreateEndpointBody) { b.Reliability = level }
	v = w.a.newVI(w.a.memory(0, 0), change)
	p = w.b.newVI(w.b.memory(0, 0), change)
	connect(v, p)
	return w, v, p
}
