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
	"context"
	"fmt"

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

type searcher struct {
	ctx     context.Context // of the one search
	profile *profile.Profile
	payload int
	best    *Result
}

// Optimal searches for the schedules with the lowest one-way latency of a frame. It
// takes seconds for the longest ones, and fails with the cause of the end of ctx when
// that ends first.
func Optimal(ctx context.Context, p *profile.Profile, payload int) (*Result, error) {
	if payload < 1 || payload > MaxPayload {
		return nil, &option.Error{Option: "payload", Value: fmt.Sprint(payload), Allowed: fmt.Sprintf("1 to %d bytes for policy optimal", MaxPayload)}
	}
	s := &searcher{ctx: ctx, profile: p, payload: payload}
	for _, part := range []func() error{s.thresholds, s.adaptive, s.improveSend, s.improveReceive} {
		if err := part(); err != nil {
			return nil, err
		}
	}
	return s.best, nil
}

// keep runs a pair of schedules and keeps it if it is the best so far.
func (s *searcher) keep(send, receive []pipeline.Step) error {
	if len(send) > pipeline.MaxSchedule || len(receive) > pipeline.MaxSchedule {
		return nil
	}
	found := &Result{Send: send, Receive: receive}
	plan, err := found.Plan()
	if err != nil {
		return err
	}
	r, err := s.run(plan, 0, false)
	if err != nil {
		return err
	}
	if found.Latency = r.Latency; s.best == nil || r.Latency < s.best.Latency {
		s.best = found
	}
	return nil
}

// run moves one frame behind some that warm a policy up.
func (s *searcher) run(plan pipeline.Plan, warmup int, log bool) (*virtual.Result, error) {
	return virtual.Run(s.ctx, virtual.Options{Profile: s.profile, Plan: plan, Payload: s.payload, Count: 1, Warmup: warmup, Log: log})
}

// keepRun keeps what one frame shows behind some that warm a policy up, with the sender's steps
// as they were and started as early as they can be.
func (s *searcher) keepRun(plan pipeline.Plan, warmup int) error {
	r, err := s.run(plan, warmup, true)
	if err != nil {
		return err
	}
	receive := s.stepsOf(r.Log, dmalog.HostRcv)
	if warmup == 0 && (s.best == nil || r.Latency < s.best.Latency) {
		s.best = &Result{s.stepsOf(r.Log, dmalog.NetTx), receive, r.Latency, plan}
	}
	for _, send := range [][]pipeline.Step{s.stepsOf(r.Log, dmalog.NetTx), s.earlySteps(r.Log)} {
		if err := s.keep(send, receive); err != nil {
			return err
		}
	}
	return nil
}
