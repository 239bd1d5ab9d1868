package search

import (
	"slices"

	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// maxChain bounds the transfers of a chain.
const maxChain = 48

// from waits for a number of bytes of a frame and then takes what is there whenever
// it is asked.
type from int

// Next implements pipeline.Policy.
func (f from) Next(v pipeline.View) int {
	if n := v.Available(); v.Sent > 0 || n >= int(f) || v.Finished() {
		return n
	}
	return 0
}

// families tries the pulses that simple policies make.
func (s *searcher) families() error {
	var policies []pipeline.Policy
	for _, n := range s.scale(3) {
		policies = append(policies, pipeline.Eager{MinPulse: n}, pipeline.Static{Pulse: n})
	}
	for m := 1; m <= maxChain; m++ {
		if c, ok := s.chain(m); ok {
			policies = append(policies, c)
		}
	}
	for _, p := range policies {
		if err := s.keepRun(planOf(p, pipeline.StoreAndForward{}), 0); err != nil {
			return err
		}
	}
	return nil
}

// scale returns sizes from 1 byte to the payload, each greater than the one before
// by about its part-th part.
func (s *searcher) scale(part int) []int {
	sizes := []int{1}
	for n := 16; n < s.payload; n += n/part + 1 {
		sizes = append(sizes, n)
	}
	return append(sizes, s.payload)
}

// chain returns the netTx schedule of m transfers that follow each other without a
// pause, each taking what hostTx brought during the one before.
func (s *searcher) chain(m int) (pipeline.Policy, bool) {
	arrival := 1000 / float64(s.profile.Sender.Read.PerByte) // bytes per picosecond
	growth := float64(s.profile.Link.Pulse.PerByte) / float64(s.profile.Sender.Read.PerByte)
	refill := arrival * float64(s.profile.NIC.Decision+s.profile.Link.Pulse.Overhead)
	sizes, extra := 0.0, 0.0
	for range m {
		extra += sizes
		sizes = 1 + growth*sizes
	}
	size := (float64(s.payload) - refill*extra) / sizes
	if size < 1 {
		return nil, false
	}
	pulses := make([]int, m)
	left := s.payload
	for k := range pulses {
		pulses[k] = min(max(int(size), 1), left-(m-1-k))
		left -= pulses[k]
		size = growth*size + refill
	}
	pulses[m-1] += left
	if pulses[m-1] < 1 {
		return nil, false
	}
	schedule, err := pipeline.NewSchedule(pulses)
	return schedule, err == nil
}

// pair is a threshold for each side.
type pair struct {
	send, receive int
	latency       profile.Time
}

// refined is the number of pairs whose neighbourhood is searched.
const refined = 6

// thresholds tries pairs of thresholds on a coarse scale, and refines the best.
func (s *searcher) thresholds() error {
	var pairs []pair
	sizes := s.scale(4)
	for _, a := range sizes {
		for _, b := range sizes {
			l, err := s.latency(a, b)
			if err != nil {
				return err
			}
			pairs = append(pairs, pair{a, b, l})
		}
	}
	slices.SortStableFunc(pairs, func(a, b pair) int { return int(a.latency - b.latency) })
	for _, p := range pairs[:min(refined, len(pairs))] {
		p, err := s.refine(p)
		if err != nil {
			return err
		}
		if err := s.keepRun(planOf(from(p.send), from(p.receive)), 0); err != nil {
			return err
		}
	}
	return nil
}

// refine moves both thresholds of a pair by ever smaller steps while that helps.
func (s *searcher) refine(p pair) (pair, error) {
	for step := max(p.send, p.receive) / 4; step > 0; step /= 2 {
		for _, by := range [][2]int{{step, 0}, {-step, 0}, {0, step}, {0, -step}} {
			for {
				q := pair{send: p.send + by[0], receive: p.receive + by[1]}
				if q.send < 1 || q.receive < 1 || q.send > s.payload || q.receive > s.payload {
					break
				}
				var err error
				if q.latency, err = s.latency(q.send, q.receive); err != nil {
					return p, err
				}
				if q.latency >= p.latency {
					break
				}
				p = q
			}
		}
	}
	return p, nil
}

func (s *searcher) latency(send, receive int) (profile.Time, error) {
	r, err := s.run(planOf(from(send), from(receive)), false)
	if err != nil {
		return 0, err
	}
	return r.Latency, nil
}

func planOf(send, receive pipeline.Policy) pipeline.Plan {
	return pipeline.Plan{Send: func() pipeline.Policy { return send }, Receive: func() pipeline.Policy { return receive }}
}

// adaptive tries what the adaptive policies do with a lone frame, those that learn
// after they have learned.
func (s *searcher) adaptive() error {
	for _, name := range []string{"amp", "auto"} {
		plan, err := pipeline.ByName(name, pipeline.Parameters{})
		if err != nil {
			return err
		}
		if err := s.keepRun(plan, 64); err != nil {
			return err
		}
	}
	return nil
}
