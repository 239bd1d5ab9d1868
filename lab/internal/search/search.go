// Package search finds the schedules that move one frame fastest over an idle
// system whose costs are known: policy "optimal", and the mark that policies which
// do not know the costs are measured against.
//
// The search has two sources of schedules. Pairs of thresholds: each side waits
// for its threshold and from then on takes what is there whenever its engine is
// idle. And what the adaptive policies do. The best of them is then improved
// by moving and dropping boundaries between transfers, one at a time, while that
// helps. The outcome is the best that was found, not a proven optimum.
package search

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/virtual"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// MaxPayload is the longest frame for which schedules are searched, in bytes.
const MaxPayload = 1 << 20

// Result of a search.
type Result struct {
	Send, Receive []pipeline.Step
	Latency       profile.Time // one way, in virtual time

	plan pipeline.Plan // of thresholds whose transfers no schedule repeats to the byte, if they are the best
}

// Plan returns the schedules as policy "optimal".
func (r *Result) Plan() (pipeline.Plan, error) {
	if r.plan.Send != nil {
		return r.plan, nil
	}
	return pipeline.ByName("optimal", pipeline.Parameters{OptimalSend: r.Send, OptimalReceive: r.Receive})
}

// Plan returns a policy by its name. That of "optimal" has the best schedules for a payload on a platform.
func Plan(ctx context.Context, p *profile.Profile, policy string, payload int, o pipeline.Parameters) (pipeline.Plan, error) {
	if policy != "optimal" {
		return pipeline.ByName(policy, o)
	}
	best, err := Optimal(ctx, p, payload)
	if err != nil {
		return pipeline.Plan{}, err
	}
	return best.Plan()
}

type searcher struct {
	ctx     context.Context // of the one search
	profile *profile.Profile
	payload int
	best    Result
	err     error // the first one; nothing runs after it
}

// Optimal searches for the schedules with the lowest one-way latency of a frame. It
// takes seconds for the longest ones, and fails with the cause of the end of ctx when
// that ends first.
func Optimal(ctx context.Context, p *profile.Profile, payload int) (*Result, error) {
	if payload < 1 || payload > MaxPayload {
		return nil, &option.Error{Option: "payload", Value: fmt.Sprint(payload), Allowed: fmt.Sprintf("1 to %d bytes for policy optimal", MaxPayload)}
	}
	s := &searcher{ctx: ctx, profile: p, payload: payload, best: Result{Latency: math.MaxInt64}}
	s.thresholds()
	s.adaptive()
	// Boundaries between netTx pulses, of which some are too many, and those between the hostRcv steps.
	s.improve(func(r *Result) *[]pipeline.Step { return &r.Send }, []int{-512, -128, -32, 32, 128, 512}, true)
	s.improve(func(r *Result) *[]pipeline.Step { return &r.Receive }, []int{-128, -32, -8, 8, 32, 128}, false)
	if s.err != nil {
		return nil, s.err
	}
	return &s.best, nil
}

// keep runs a pair of schedules and keeps it if it is the best so far.
func (s *searcher) keep(send, receive []pipeline.Step) {
	if len(send) > pipeline.MaxSchedule || len(receive) > pipeline.MaxSchedule || s.err != nil {
		return
	}
	found := Result{Send: send, Receive: receive}
	plan, err := found.Plan()
	s.err = err
	if found.Latency = s.run(plan, 0, false).Latency; found.Latency < s.best.Latency {
		s.best = found
	}
}

// run moves one frame behind some that warm a policy up. After an error the result is empty.
func (s *searcher) run(plan pipeline.Plan, warmup int, log bool) *virtual.Result {
	if s.err == nil {
		r, err := virtual.Run(s.ctx, virtual.Options{Profile: s.profile, Plan: plan, Payload: s.payload, Count: 1, Warmup: warmup, Log: log})
		if err == nil {
			return r
		}
		s.err = err
	}
	return &virtual.Result{}
}

// keepRun keeps what one frame shows behind some that warm a policy up, with the sender's steps
// as they were and started as early as they can be.
func (s *searcher) keepRun(plan pipeline.Plan, warmup int) {
	r := s.run(plan, warmup, true)
	send, receive := s.stepsOf(r.Log, dmalog.NetTx), s.stepsOf(r.Log, dmalog.HostRcv)
	if warmup == 0 && r.Latency < s.best.Latency {
		s.best = Result{send, receive, r.Latency, plan}
	}
	s.keep(send, receive)
	s.keep(s.earlySteps(r.Log), receive)
}

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

type pair struct {
	send, receive int
	latency       profile.Time
}

// refined is the number of pairs whose neighbourhood is searched.
const refined = 6

// thresholds tries pairs of thresholds on a coarse scale, and refines the best.
func (s *searcher) thresholds() {
	var pairs []pair
	sizes := s.scale(4)
	for _, a := range sizes {
		for _, b := range sizes {
			pairs = append(pairs, pair{a, b, s.latency(a, b)})
		}
	}
	slices.SortStableFunc(pairs, func(a, b pair) int { return int(a.latency - b.latency) })
	for _, p := range pairs[:min(refined, len(pairs))] {
		p = s.refine(p)
		s.keepRun(planOf(from(p.send), from(p.receive)), 0)
	}
}

// refine moves both thresholds of a pair by ever smaller steps while that helps.
func (s *searcher) refine(p pair) pair {
	for step := max(p.send, p.receive) / 4; step > 0; step /= 2 {
		for _, by := range [][2]int{{step, 0}, {-step, 0}, {0, step}, {0, -step}} {
			for {
				q := pair{send: p.send + by[0], receive: p.receive + by[1]}
				if q.send < 1 || q.receive < 1 || q.send > s.payload || q.receive > s.payload {
					break
				}
				if q.latency = s.latency(q.send, q.receive); q.latency >= p.latency {
					break
				}
				p = q
			}
		}
	}
	return p
}

func (s *searcher) latency(send, receive int) profile.Time {
	return s.run(planOf(from(send), from(receive)), 0, false).Latency
}

func planOf(send, receive pipeline.Policy) pipeline.Plan {
	return pipeline.Plan{Name: "optimal", Send: func() pipeline.Policy { return send }, Receive: func() pipeline.Policy { return receive }}
}

// adaptive tries what the adaptive policies do with a lone frame, those that learn
// after they have learned.
func (s *searcher) adaptive() {
	for _, name := range []string{"amp", "auto"} {
		plan, err := pipeline.ByName(name, pipeline.Parameters{})
		s.err = cmp.Or(s.err, err)
		s.keepRun(plan, 64)
	}
}

// rounds of moving boundaries; later ones find nothing.
const rounds = 6

// improve tries the best steps of one side with each boundary moved by some bytes of 8192, and without it if
// that is asked for, as long as latency falls.
func (s *searcher) improve(side func(*Result) *[]pipeline.Step, moves []int, drop bool) {
	try := func(steps []pipeline.Step) {
		r := s.best
		*side(&r) = steps
		s.keep(r.Send, r.Receive)
	}
	best := side(&s.best)
	for range rounds {
		before := s.best.Latency
		for i := 0; i+1 < len(*best); i++ {
			for _, by := range moves {
				if steps, ok := shifted(*best, i, by*s.payload/8192); ok {
					try(steps)
				}
			}
			if drop && i+1 < len(*best) {
				try(merged(*best, i))
			}
		}
		if s.best.Latency == before {
			return
		}
	}
}

func shifted(steps []pipeline.Step, i, by int) ([]pipeline.Step, bool) {
	if by == 0 || steps[i].Bytes+by < 1 || steps[i+1].Bytes-by < 1 {
		return nil, false
	}
	out := slices.Clone(steps)
	resize := func(st *pipeline.Step, by int) {
		st.Wait = max(st.Wait+by, 1)
		st.Bytes += by
		st.Wait = min(st.Wait, st.Bytes)
	}
	resize(&out[i], by)
	resize(&out[i+1], -by)
	return out, true
}

func merged(steps []pipeline.Step, i int) []pipeline.Step {
	out := slices.Clone(steps[:i+1])
	early := steps[i+1].Bytes - steps[i+1].Wait
	out[i].Bytes += steps[i+1].Bytes
	out[i].Wait = max(out[i].Bytes-early, 1)
	return append(out, steps[i+2:]...)
}

// pulse is a run of bytes that arrives at a rate that is taken as steady: at the receiver a netTx
// pulse, at the sender the whole frame.
type pulse struct {
	from, end profile.Time // of its payload bytes
	offset    int
	bytes     int
}

// by returns how many of the bytes have arrived at a time.
func (p *pulse) by(now profile.Time) int {
	return min(int((now-p.from)*profile.Time(p.bytes)/max(p.end-p.from, 1)), p.bytes)
}

func (s *searcher) arrivals(log []dmalog.Record) []pulse {
	var pulses []pulse
	offset := 0
	link := s.profile.Link
	for _, l := range log {
		if l.Engine != dmalog.NetTx {
			continue
		}
		from, end := profile.Time(l.Start)+link.Latency, profile.Time(l.End)+link.Latency
		if offset > 0 {
			from += link.Pulse.Overhead // of the first it is ahead of the control message
		}
		pulses = append(pulses, pulse{from, end, offset, l.Bytes})
		offset += l.Bytes
	}
	return pulses
}

// fetched returns the bytes of a log of one frame as hostTx brings them.
func (s *searcher) fetched(log []dmalog.Record) []pulse {
	for _, l := range log {
		if l.Engine == dmalog.HostTx {
			return []pulse{{profile.Time(l.Start) + s.profile.Sender.Read.Overhead, profile.Time(l.End), 0, l.Bytes}}
		}
	}
	return nil
}

// arrivedBy returns the bytes that have arrived at a time.
func arrivedBy(pulses []pulse, now profile.Time) int {
	for _, p := range slices.Backward(pulses) {
		if now >= p.from {
			return p.offset + p.by(now)
		}
	}
	return 0
}

// stepsOf returns the transfers of one engine as steps. Each waits for the bytes
// that were there one decision before it started.
func (s *searcher) stepsOf(log []dmalog.Record, e dmalog.Engine) []pipeline.Step {
	pulses := s.arrivals(log)
	if e == dmalog.NetTx {
		pulses = s.fetched(log)
	}
	var steps []pipeline.Step
	sent := 0
	for _, l := range log {
		if l.Engine == e {
			there := arrivedBy(pulses, profile.Time(l.Start)-s.profile.NIC.Decision) - sent
			steps = append(steps, pipeline.Step{Wait: min(max(there, 1), l.Bytes), Bytes: l.Bytes})
			sent += l.Bytes
		}
	}
	return steps
}

// earlySteps returns the netTx transfers of a log as steps that count on all bytes
// which hostTx brings during a decision.
func (s *searcher) earlySteps(log []dmalog.Record) []pipeline.Step {
	early := int(int64(s.profile.NIC.Decision) * 1000 / s.profile.Sender.Read.PerByte)
	var steps []pipeline.Step
	for _, l := range log {
		if l.Engine == dmalog.NetTx {
			steps = append(steps, pipeline.Step{Wait: max(l.Bytes-early, 1), Bytes: l.Bytes})
		}
	}
	return steps
}
