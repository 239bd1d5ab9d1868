package search

import (
	"slices"

	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/pipeline"
)

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

// scale returns sizes from 1 byte to the payload, each greater than the one before
// by about its part-th part.
func (s *searcher) scale(part int) []int {
	sizes := []int{1}
	for n := 16; n < s.payload; n += n/part + 1 {
		sizes = append(sizes, n)
	}
	return append(sizes, s.payload)
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
	r, err := s.run(planOf(from(send), from(receive)), 0, false)
	if err != nil {
		return 0, err
	}
	return r.Latency, nil
}

func planOf(send, receive pipeline.Policy) pipeline.Plan {
	return pipeline.Plan{Name: "optimal", Send: func() pipeline.Policy { return send }, Receive: func() pipeline.Policy { return receive }}
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
