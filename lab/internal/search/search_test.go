package search_test

import (
	"context"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/search"
	"github.com/trapeze-nic/trapeze/lab/internal/virtual"
	"github.com/trapeze-nic/trapeze/pipeline"
)

func latency(t *testing.T, p *profile.Profile, plan pipeline.Plan, payload, warmup int) profile.Time {
	t.Helper()
	r := must.Get(virtual.Run(context.Background(), virtual.Options{Profile: p, Plan: plan, Payload: payload, Count: 1, Warmup: warmup}))(t)
	return r.Latency
}

// TestNothingBeatsOptimal tries the other policies, with many thresholds.
func TestNothingBeatsOptimal(t *testing.T) {
	for _, name := range []string{"p6-natoma", "alcor", "pcie3-x8-10g", "pcie6-x16-800g"} {
		p := must.Get(profile.Hosts.Load(name))(t)
		for _, payload := range []int{1024, 8192} {
			best := must.Get(search.Optimal(context.Background(), p, payload))(t)
			plan := must.Get(best.Plan())(t)
			should.Be(t, latency(t, p, plan, payload, 0), best.Latency, "%s, %d bytes: the plan takes, the search said", name, payload)
			for _, policy := range []string{"store-and-forward", "static", "cut-through", "eager", "amp", "table", "schedule", "hierarchical", "auto"} {
				for _, n := range []int{16, 64, 200, 512, 1000} {
					other := must.Get(pipeline.ByName(policy, pipeline.Parameters{MinPulseSend: n, MinPulseReceive: n}))(t)
					// A schedule's grid may miss the last bytes: a fiftieth of a percent.
					if l := latency(t, p, other, payload, 40); float64(l) < 0.9998*float64(best.Latency) {
						t.Errorf("%s, %d bytes: %s with %d takes %v us, optimal %v us", name, payload, policy, n, l.Microseconds(), best.Latency.Microseconds())
					}
				}
			}
		}
	}
}

// onwards takes what is there from a number of bytes on.
type onwards int

func (n onwards) Next(v pipeline.View) int {
	if v.Sent == 0 && v.Available() < int(n) && !v.Finished() {
		return 0
	}
	return v.Available()
}

// TestNoPairOfThresholdsBeatsOptimal tries pairs that the search does not try, on a
// platform that has no profile. None is better by more than 0.4 %.
func TestNoPairOfThresholdsBeatsOptimal(t *testing.T) {
	p := must.Get(profile.Hosts.Load("pii-440lx"))(t)
	odd := *p
	odd.Sender.Read, odd.Receiver.Write, odd.Link.Pulse = profile.NewCost(6, 90), profile.NewCost(3, 170), profile.NewCost(0.3, 110)
	const payload = 5000
	best := must.Get(search.Optimal(context.Background(), &odd, payload))(t)
	for send := 1; send <= payload; send += 1 + send/5 {
		for receive := 1; receive <= payload; receive += 1 + receive/11 {
			plan := pipeline.Plan{Send: func() pipeline.Policy { return onwards(send) }, Receive: func() pipeline.Policy { return onwards(receive) }}
			if l := latency(t, &odd, plan, payload, 0); float64(l) < 0.996*float64(best.Latency) {
				t.Errorf("thresholds %d and %d take %v us, optimal %v us", send, receive, l.Microseconds(), best.Latency.Microseconds())
			}
		}
	}
}

func TestSchedulesCoverTheFrame(t *testing.T) {
	p := must.Get(profile.Hosts.Load("alcor-miata"))(t)
	for _, payload := range []int{1, 2, 77, 4096} {
		r := must.Get(search.Optimal(context.Background(), p, payload))(t)
		for side, steps := range map[string][]pipeline.Step{"send": r.Send, "receive": r.Receive} {
			sum := 0
			for _, s := range steps {
				sum += s.Bytes
			}
			should.Be(t, sum, payload, "%s: %v adds up to bytes", side, steps)
		}
	}
}

func TestBadPayloads(t *testing.T) {
	p := must.Get(profile.Hosts.Load("alcor"))(t)
	for _, n := range []int{-1, 0, search.MaxPayload + 1} {
		should.Refuse(search.Optimal(context.Background(), p, n))(t, option.ErrBad, "%d bytes", n)
	}
}

func BenchmarkOptimal(b *testing.B) {
	p := must.Get(profile.Hosts.Load("p6-natoma"))(b)
	for b.Loop() {
		must.Get(search.Optimal(context.Background(), p, 8192))(b)
	}
}

// limited is a context that ends after so many looks.
type limited struct {
	context.Context
	looks *int
}

func (l limited) Err() error {
	if *l.looks--; *l.looks < 0 {
		return context.Canceled
	}
	return nil
}

// TestSearchEnds: whenever its context ends, a search ends at the next look.
func TestSearchEnds(t *testing.T) {
	p := must.Get(profile.Hosts.Load("p6-natoma"))(t)
	for _, looks := range []int{0, 1, 100, 3000} {
		left := looks
		should.Refuse(search.Optimal(limited{t.Context(), &left}, p, search.MaxPayload))(t, context.Canceled, "after %d looks", looks)
		if left < -4 {
			t.Errorf("it went on for %d looks", -left)
		}
	}
}
