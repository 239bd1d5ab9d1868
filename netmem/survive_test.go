package netmem

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
)

// TestSurvive: with two copies, a random workload beside a model goes on while servers
// die and come back, one at a time.
func TestSurvive(t *testing.T) {
	for seed := range uint64(soak.Count(1, 20)) {
		for _, servers := range []int{2, 3} {
			t.Run(fmt.Sprintf("%d servers, seed %d", servers, seed), func(t *testing.T) {
				tell(t, servers, 128, func(s *story) { survive(s, rand.New(rand.NewPCG(seed, 0))) })
			})
		}
	}
}

func survive(s *story, random *rand.Rand) {
	c, _ := must.Two(s.client())(s)
	model := make([]byte, modelPage*s.pages)
	step := func() {
		off := random.IntN(len(model))
		n := min(1+random.IntN(3*modelPage), len(model)-off)
		if random.IntN(4) == 0 { // whole pages
			off, n = off/modelPage*modelPage, modelPage
		}
		b := make([]byte, n)
		if random.IntN(2) == 0 {
			for i := range b {
				b[i] = byte(random.Uint32())
			}
			must.Get(c.WriteAt(b, int64(off)))(s)
			copy(model[off:], b)
		} else if _, err := c.ReadAt(b, int64(off)); err != nil || !bytes.Equal(b, model[off:off+n]) {
			s.Fatalf("%d bytes at %d are not what was written: %v", n, off, err)
		}
		if random.IntN(20) == 0 {
			must.OK(s, c.Sync())
		}
	}
	for round := range 3 {
		victim := s.servers[random.IntN(len(s.servers))]
		for range 100 {
			step()
		}
		s.kill(victim)
		for range 100 {
			step()
		}
		s.start(victim)
		for range 100 {
			step()
		}
		wantComplete(s.T, c)
		if round == 0 && c.Stats().Repaired == 0 {
			s.Error("nothing was copied to a server that came back")
		}
	}
	must.OK(s, c.Sync())
	same := func(what string, c *Client) {
		got := make([]byte, len(model))
		must.Get(c.ReadAt(got, 0))(s)
		should.Same(s, got, model, "%s", what)
	}
	c.Drop()
	same("at the end", c)
	// Each server alone has all that it should have: the other clients see the same.
	other, _ := must.Two(s.client())(s)
	s.kill(s.servers[0])
	same("without one server", other)
	for _, c := range []*Client{c, other} {
		should.OK(s, c.Close())
	}
}
