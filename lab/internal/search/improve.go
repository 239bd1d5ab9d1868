package search

import "github.com/trapeze-nic/trapeze/pipeline"

// rounds of moving boundaries; later ones find nothing.
const rounds = 6

// improveSend moves each boundary between netTx pulses, and drops pulses, as long
// as latency falls.
func (s *searcher) improveSend() error {
	return s.improve(func() []pipeline.Step { return s.best.Send }, []int{-512, -128, -32, 32, 128, 512}, true,
		func(steps []pipeline.Step) error { return s.keep(steps, s.best.Receive) })
}

// improveReceive moves the boundaries of the hostRcv steps.
func (s *searcher) improveReceive() error {
	return s.improve(func() []pipeline.Step { return s.best.Receive }, []int{-128, -32, -8, 8, 32, 128}, false,
		func(steps []pipeline.Step) error { return s.keep(s.best.Send, steps) })
}

// improve tries the best steps with each boundary moved by some bytes of 8192, and without it if
// that is asked for, as long as latency falls.
func (s *searcher) improve(best func() []pipeline.Step, moves []int, drop bool, try func([]pipeline.Step) error) error {
	for range rounds {
		before := s.best.Latency
		for i := 0; i+1 < len(best()); i++ {
			for _, by := range moves {
				if steps, ok := shifted(best(), i, by*s.payload/8192); ok {
					if err := try(steps); err != nil {
						return err
					}
				}
			}
			if drop && i+1 < len(best()) {
				if err := try(merged(best(), i)); err != nil {
					return err
				}
			}
		}
		if s.best.Latency == before {
			return nil
		}
	}
	return nil
}

// shifted moves the boundary after step i by some bytes.
func shifted(steps []pipeline.Step, i, by int) ([]pipeline.Step, bool) {
	if by == 0 || steps[i].Bytes+by < 1 || steps[i+1].Bytes-by < 1 {
		return nil, false
	}
	out := append([]pipeline.Step(nil), steps...)
	resize := func(st *pipeline.Step, by int) {
		st.Wait = max(st.Wait+by, 1)
		st.Bytes += by
		st.Wait = min(st.Wait, st.Bytes)
	}
	resize(&out[i], by)
	resize(&out[i+1], -by)
	return out, true
}

// merged joins steps i and i+1.
func merged(steps []pipeline.Step, i int) []pipeline.Step {
	out := append([]pipeline.Step(nil), steps[:i+1]...)
	early := steps[i+1].Bytes - steps[i+1].Wait
	out[i].Bytes += steps[i+1].Bytes
	out[i].Wait = max(out[i].Bytes-early, 1)
	return append(out, steps[i+2:]...)
}
