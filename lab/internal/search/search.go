// Package search finds the schedules that move one frame fastest over an idle
// system whose costs are known: policy "optimal", and the mark that policies which
// do not know the costs are measured against.
//
// The search has three sources of schedules. Pairs of thresholds: each side waits
// for its threshold and from then on takes what is there whenever its engine is
// idle. Families of netTx pulses (eager, equal, chains without a pause), each with
// the hostRcv transfers that answer it best, by dynamic programming over the bytes
// of the frame. And what the adaptive policies do. The best of them is then improved
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
}

// Plan returns the schedules as policy "optimal".
func (r *Result) Plan() (pipeline.Plan, error) {
	return pipeline.ByName("optimal", pipeline.Parameters{OptimalSend: r.Send, OptimalReceive: r.Receive})
}

type searcher struct {
	ctx     context.Context // of the one search
	profile *profile.Profile
	payload int
	grid    int // bytes between the boundaries that dynamic programming considers
	best    *Result
}

// Optimal searches for the schedules with the lowest one-way latency of a frame. It
// takes seconds for the longest ones, and fails with the cause of the end of ctx when
// that ends first.
func Optimal(ctx context.Context, p *profile.Profile, payload int) (*Result, error) {
	if payload < 1 || payload > MaxPayload {
		return nil, &option.Error{Option: "payload", Value: fmt.Sprint(payload), Allowed: fmt.Sprintf("1 to %d bytes for policy optimal", MaxPayload)}
	}
	s := &searcher{ctx: ctx, profile: p, payload: payload, grid: max(payload/256, 1)}
	for _, part := range []func() error{s.families, s.thresholds, s.adaptive, s.improveSend, s.answerFinely, s.improveReceive} {
		if err := part(); err != nil {
			return nil, err
		}
	}
	return s.best, nil
}

// Answer searches for the hostRcv transfers that answer the netTx pulses of a log of
// one frame best. The result's Send holds those pulses.
func Answer(ctx context.Context, p *profile.Profile, payload int, log []dmalog.Record) (*Result, error) {
	s := &searcher{ctx: ctx, profile: p, payload: payload, grid: max(payload/1024, 1)}
	send := s.stepsOf(log, dmalog.NetTx)
	if sum(send) != payload || payload < 1 || len(send) > pipeline.MaxSchedule {
		return nil, &option.Error{Option: "log", Value: fmt.Sprint(sum(send), " bytes"), Allowed: "the netTx transfers of one frame"}
	}
	if err := s.try(send); err != nil {
		return nil, err
	}
	pulses, err := pipeline.NewSteps(send)
	if err != nil {
		return nil, err
	}
	for _, n := range s.scale(20) {
		r, err := s.run(planOf(pulses, from(n)), true)
		if err != nil {
			return nil, err
		}
		if err := s.keep(send, s.stepsOf(r.Log, dmalog.HostRcv)); err != nil {
			return nil, err
		}
	}
	return s.best, s.improveReceive()
}

func sum(steps []pipeline.Step) int {
	n := 0
	for _, s := range steps {
		n += s.Bytes
	}
	return n
}

// answerFinely repeats the dynamic programming on a finer grid.
func (s *searcher) answerFinely() error {
	s.grid = max(s.payload/1024, 1)
	return s.try(s.best.Send)
}

// try finds the receiver's best answer to the sender's steps, runs both, and
// keeps them if they are the best so far.
func (s *searcher) try(send []pipeline.Step) error {
	plan, err := (&Result{Send: send, Receive: []pipeline.Step{{Wait: s.payload, Bytes: s.payload}}}).Plan()
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
	if len(send) > pipeline.MaxSchedule || len(receive) > pipeline.MaxSchedule {
		return nil
	}
	found := &Result{Send: send, Receive: receive}
	plan, err := found.Plan()
	if err != nil {
		return err
	}
	r, err := s.run(plan, false)
	if err != nil {
		return err
	}
	if found.Latency = r.Latency; s.best == nil || r.Latency < s.best.Latency {
		s.best = found
	}
	return nil
}

func (s *searcher) run(plan pipeline.Plan, log bool) (*virtual.Result, error) {
	return virtual.Run(s.ctx, virtual.Options{Profile: s.profile, Plan: plan, Payload: s.payload, Count: 1, Log: log})
}

// keepRun keeps what one frame shows behind some that warm a policy up, with the sender's steps
// as they were and started as early as they can be, and the receiver's steps as they were and as
// the best answer.
func (s *searcher) keepRun(plan pipeline.Plan, warmup int) error {
	r, err := virtual.Run(s.ctx, virtual.Options{Profile: s.profile, Plan: plan, Payload: s.payload, Count: 1, Warmup: warmup, Log: true})
	if err != nil {
		return err
	}
	receive := s.stepsOf(r.Log, dmalog.HostRcv)
	for _, send := range [][]pipeline.Step{s.stepsOf(r.Log, dmalog.NetTx), s.earlySteps(r.Log)} {
		if len(send) > pipeline.MaxSchedule {
			return nil
		}
		if err := s.keep(send, receive); err != nil {
			return err
		}
		if err := s.try(send); err != nil {
			return err
		}
	}
	return nil
}

// stepsOf returns the transfers of one engine as steps. Each waits for the bytes
// that were there one decision before it started.
func (s *searcher) stepsOf(log []dmalog.Record, e dmalog.Engine) []pipeline.Step {
	pulses, source := s.arrivals(log), s.profile.Link.Pulse
	if e == dmalog.NetTx {
		pulses, source = s.fetched(log), s.profile.Sender.Read
	}
	var steps []pipeline.Step
	sent := 0
	for _, l := range log {
		if l.Engine == e {
			there := arrivedBy(pulses, profile.Time(l.Start)-s.profile.NIC.Decision, source) - sent
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
