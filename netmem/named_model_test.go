package netmem

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/via"
)

// TestNamedModel is TestModel for a pool whose servers come and go, and come back with old pages. Some
// leave while they still answer, and clients hear late which servers have the name.
func TestNamedModel(t *testing.T) { runModel(t, newNamedSchedule) }

func newNamedSchedule(t *testing.T, l *lender, seed uint64) *schedule {
	s := newSchedule(t, l, seed)
	s.loses, s.named, s.servers = false, map[string]bool{}, nil
	for i := range 3 + s.r.IntN(3) {
		n := &modelServer{node: fmt.Sprintf("s%d", i), disk: &disk{}}
		s.named[n.node] = i < 2+s.r.IntN(2)
		s.servers = append(s.servers, n)
	}
	if s.witness == nil && s.r.IntN(2) == 0 {
		s.witness = &modelServer{node: "witness"}
	}
	return s
}

// lookup returns how a client asks for the name.
func (s *schedule) lookup(p *process) func(context.Context) ([]via.Address, error) {
	var opens int
	s.set(func() { s.opens++; opens = s.opens })
	r := s.random(fmt.Sprint("names", opens))
	return func(context.Context) ([]via.Address, error) {
		if err := p.gate(); err != nil || r.IntN(8) == 0 {
			return nil, errors.Join(err, errors.New("the service of names is away"))
		}
		return s.addresses(), nil
	}
}

func (s *schedule) hasName(n *modelServer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.named[n.node]
}

// comeOrGo has a server publish the name, or lose its lease: with it, some end.
func (s *schedule) comeOrGo() {
	n := s.servers[s.r.IntN(len(s.servers))]
	if !s.hasName(n) {
		s.trace("%s has the name", n.node)
		s.set(func() { s.named[n.node] = true })
		return
	}
	// Where none of the pool has the name, the others are made another pool.
	known := func(o *modelServer) bool { return o != n && s.hasName(o) && o.disk.kept.Pool != 0 }
	if len(s.addresses()) <= 2 || !slices.ContainsFunc(s.servers, known) {
		return
	}
	dies := s.r.IntN(2) == 0
	s.trace("%s has the name no more, and ends: %v", n.node, dies)
	if dies {
		s.kill(n)
	}
	s.set(func() { s.named[n.node] = false })
	s.later(time.Second+s.upTo(14*time.Second), func() {
		s.start(n)
		s.trace("%s has the name again", n.node)
		s.set(func() { s.named[n.node] = true })
	})
}
