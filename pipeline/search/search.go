// Package search finds the schedules that move one frame fastest over an idle
// system whose costs are known: policy "optimal", and the mark that policies which
// do not know the costs are measured against.
//
// For given pulses of netTx the best pulses of hostRcv follow by dynamic
// programming over the bytes of the frame. Pulses of netTx are taken from families
// (eager from different thresholds, equal pulses, whole frames) and then improved
// by moving their boundaries one at a time while that helps. The outcome is the
// best that was found; only the receiver's part is exact.
package search

import (
	"fmt"

	"github.com/trapeze-nic/trapeze/pipeline"
	"github.com/trapeze-nic/trapeze/pipeline/dmalog"
	"github.com/trapeze-nic/trapeze/pipeline/profile"
	"github.com/trapeze-nic/trapeze/pipeline/virtual"
)

// MaxPayload is the longest frame for which schedules are searched, in bytes.
const MaxPayload = 1 << 20

// maxChain bounds the transfers of a chain.
const maxChain = 48

// rounds of moving boundaries; later ones find nothing.
const rounds = 6

// Result of a search.
type Result struct {
	Send, Receive []pipeline.Step
	Latency       profile.Time // one way, in virtual time
}

// Plan returns the schedules as policy "optimal".
func (r *Result) Plan() (pipeline.Plan, error) {
	return pipeline.ByName("optimal", pipeline.Parameters{OptimalSend: r.Send, OptimalReceive: r.Receive})
}

type searcher struct {
	profile *profile.Profile
	payload int
	grid    int // bytes between the boundaries that dynamic programming considers
	best    *Result
}

// Optimal searches for the schedules with the lowest one-way latency of a frame.
func Optimal(p *profile.Profile, payload int) (*Result, error) {
	if payload < 1 || payload > MaxPayload {
		return nil, &virtual.OptionError{Option: "payload", Value: fmt.Sprint(payload), Allowed: fmt.Sprintf("1 to %d bytes for policy optimal", MaxPayload)}
	}
	s := &searcher{profile: p, payload: payload, grid: max(payload/256, 1)}
	if err := s.families(); err != nil {
		return nil, err
	}
	if err := s.adaptive(); err != nil {
		return nil, err
	}
	if err := s.improve(); err != nil {
		return nil, err
	}
	s.grid = max(payload/1024, 1)
	if err := s.try(s.best.Send); err != nil {
		return nil, err
	}
	if err := s.improveReceive(); err != nil {
		return nil, err
	}
	return s.best, nil
}

// families tries the pulses that simple policies make.
func (s *searcher) families() error {
	var policies []pipeline.Policy
	for n := 16; n < s.payload; n += n/3 + 1 {
		policies = append(policies, pipeline.Eager{MinPulse: n}, pipeline.Static{Pulse: n})
	}
	policies = append(policies, pipeline.Eager{MinPulse: s.payload})
	for m := 1; m <= maxChain; m++ {
		if c, ok := s.chain(m); ok {
			policies = append(policies, c)
		}
	}
	for _, p := range policies {
		steps, err := s.pulsesOf(p)
		if err != nil {
			return err
		}
		if len(steps) > pipeline.MaxSchedule {
			continue
		}
		if err := s.try(steps); err != nil {
			return err
		}
	}
	return nil
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

// improve moves each boundary between netTx pulses, and drops pulses, as long as
// latency falls.
func (s *searcher) improve() error {
	for range rounds {
		before := s.best.Latency
		for i := 0; i+1 < len(s.best.Send); i++ {
			for _, by := range []int{-512, -128, -32, 32, 128, 512} {
				by = by * s.payload / 8192
				if steps, ok := shifted(s.best.Send, i, by); ok {
					if err := s.try(steps); err != nil {
						return err
					}
				}
			}
			if i+1 < len(s.best.Send) {
				if err := s.try(merged(s.best.Send, i)); err != nil {
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

// improveReceive does the same for the hostRcv steps, whose programming is exact
// only as far as the processor serves one decision at a time.
func (s *searcher) improveReceive() error {
	for range rounds {
		before := s.best.Latency
		for i := 0; i+1 < len(s.best.Receive); i++ {
			for _, by := range []int{-128, -32, -8, 8, 32, 128} {
				if steps, ok := shifted(s.best.Receive, i, by*s.payload/8192); ok {
					if err := s.keep(s.best.Send, steps); err != nil {
						return err
					}
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

// pulsesOf returns what a policy does with a lone frame as steps.
func (s *searcher) pulsesOf(p pipeline.Policy) ([]pipeline.Step, error) {
	plan := pipeline.Plan{Send: func() pipeline.Policy { return p }, Receive: func() pipeline.Policy { return pipeline.StoreAndForward{} }}
	r, err := s.run(plan, true)
	if err != nil {
		return nil, err
	}
	return s.stepsOf(r.Log, dmalog.NetTx, s.profile.Sender.Read), nil
}

// stepsOf returns the transfers of one engine as steps. A step starts as early as
// its bytes allow: those that arrive during the decision count.
func (s *searcher) stepsOf(log []dmalog.Record, e dmalog.Engine, source profile.Cost) []pipeline.Step {
	early := int(int64(s.profile.NIC.Decision) * 1000 / source.PerByte)
	var steps []pipeline.Step
	for _, l := range log {
		if l.Engine == e {
			steps = append(steps, pipeline.Step{Wait: max(l.Bytes-early, 1), Bytes: l.Bytes})
		}
	}
	return steps
}

// adaptive tries what the adaptive policies do with a lone frame, those that learn
// after they have learned.
func (s *searcher) adaptive() error {
	for _, name := range []string{"amp", "auto"} {
		plan, err := pipeline.ByName(name, pipeline.Parameters{})
		if err != nil {
			return err
		}
		r, err := virtual.Run(virtual.Options{Profile: s.profile, Plan: plan, Payload: s.payload, Count: 1, Warmup: 64, Log: true})
		if err != nil {
			return err
		}
		send := s.stepsOf(r.Log, dmalog.NetTx, s.profile.Sender.Read)
		receive := s.stepsOf(r.Log, dmalog.HostRcv, s.profile.Link.Pulse)
		if err := s.keep(send, receive); err != nil {
			return err
		}
		if err := s.try(send); err != nil {
			return err
		}
	}
	return nil
}

// try finds the receiver's best answer to the sender's steps, runs both, and
// keeps them if they are the best so far.
func (s *searcher) try(send []pipeline.Step) error {
	plan, err := stepsPlan(send, []pipeline.Step{{Wait: s.payload, Bytes: s.payload}})
	if err != nil {
		return err
	}
	r, err := s.run(plan, true)
	if err != nil {
		return err
	}
	return s.keep(send, s.answer(r.Log))
}

// keep runs a pair of schedules and keeps it if it is the best so far.
func (s *searcher) keep(send, receive []pipeline.Step) error {
	plan, err := stepsPlan(send, receive)
	if err != nil {
		return err
	}
	r, err := s.run(plan, false)
	if err != nil {
		return err
	}
	if s.best == nil || r.Latency < s.best.Latency {
		s.best = &Result{Send: send, Receive: receive, Latency: r.Latency}
	}
	return nil
}

func stepsPlan(send, receive []pipeline.Step) (pipeline.Plan, error) {
	return pipeline.ByName("optimal", pipeline.Parameters{OptimalSend: send, OptimalReceive: receive})
}

func (s *searcher) run(plan pipeline.Plan, log bool) (*virtual.Result, error) {
	return virtual.Run(virtual.Options{Profile: s.profile, Plan: plan, Payload: s.payload, Count: 1, Log: log})
}
