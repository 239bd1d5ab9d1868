package search_test

import (
	"context"
	"errors"
	"testing"

	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/search"
	"github.com/trapeze-nic/trapeze/lab/internal/virtual"
	"github.com/trapeze-nic/trapeze/pipeline"
)

func latency(t *testing.T, p *profile.Profile, plan pipeline.Plan, payload, warmup int) profile.Time {
	t.Helper()
	r, err := virtual.Run(context.Background(), virtual.Options{Profile: p, Plan: plan, Payload: payload, Count: 1, Warmup: warmup})
	if err != nil {
		t.Fatal(err)
	}
	return r.Latency
}

// TestNothingBeatsOptimal tries the other policies, with many thresholds.
func TestNothingBeatsOptimal(t *testing.T) {
	for _, name := range []string{"p6-natoma", "alcor", "pcie3-x8-10g", "pcie6-x16-800g"} {
		p, err := profile.Hosts.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, payload := range []int{1024, 8192} {
			best, err := search.Optimal(context.Background(), p, payload)
			if err != nil {
				t.Fatal(err)
			}
			plan, err := best.Plan()
			if err != nil {
				t.Fatal(err)
			}
			if got := latency(t, p, plan, payload, 0); got != best.Latency {
				t.Errorf("%s, %d bytes: the plan takes %v, the search said %v", name, payload, got, best.Latency)
			}
			for _, policy := range []string{"store-and-forward", "static", "cut-through", "eager", "amp", "table", "schedule", "hierarchical", "auto"} {
				for _, n := range []int{16, 64, 200, 512, 1000} {
					other, err := pipeline.ByName(policy, pipeline.Parameters{MinPulseSend: n, MinPulseReceive: n})
					if err != nil {
						t.Fatal(err)
					}
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
	p, err := profile.Hosts.Load("pii-440lx")
	if err != nil {
		t.Fatal(err)
	}
	odd := *p
	odd.Sender.Read, odd.Receiver.Write, odd.Link.Pulse = profile.NewCost(6, 90), profile.NewCost(3, 170), profile.NewCost(0.3, 110)
	const payload = 5000
	best, err := search.Optimal(context.Background(), &odd, payload)
	if err != nil {
		t.Fatal(err)
	}
	for send := 1; send <= payload; send += 1 + send/5 {
		for receive := 1; receive <= payload; receive += 1 + receive/11 {
			plan := pipeline.Plan{Send: func() pipeline.Policy { return onwards(send) }, Receive: func() pipeline.Policy { return onwards(receive) }}
			if l := latency(t, &odd, plan, payload, 0); float64(l) < 0.996*float64(best.Latency) {
				t.Errorf("thresholds %d and %d take %v us, optimal %v us", send, receive, l.Microseconds(), best.Latency.Microseconds())
			}
		}
	}
}

// TestAnswer: the best answer to a policy's pulses is at least as good as its own.
func TestAnswer(t *testing.T) {
	p, err := profile.Hosts.Load("alcor-miata")
	if err != nil {
		t.Fatal(err)
	}
	plan, err := pipeline.ByName("eager", pipeline.Parameters{MinPulseSend: 300, MinPulseReceive: 1500})
	if err != nil {
		t.Fatal(err)
	}
	r, err := virtual.Run(context.Background(), virtual.Options{Profile: p, Plan: plan, Payload: 8192, Count: 1, Log: true})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := search.Answer(context.Background(), p, 8192, r.Log)
	if err != nil {
		t.Fatal(err)
	}
	if float64(answer.Latency) > 0.99*float64(r.Latency) {
		t.Errorf("best answer %v us, eager's own %v us", answer.Latency.Microseconds(), r.Latency.Microseconds())
	}
	for payload, log := range map[int][]dmalog.Record{8192: nil, 4096: r.Log, 0: nil} {
		if _, err := search.Answer(context.Background(), p, payload, log); !errors.Is(err, option.ErrBad) {
			t.Errorf("%d bytes, %d transfers: %v", payload, len(log), err)
		}
	}
}

func TestSchedulesCoverTheFrame(t *testing.T) {
	p, err := profile.Hosts.Load("alcor-miata")
	if err != nil {
		t.Fatal(err)
	}
	for _, payload := range []int{1, 2, 77, 4096} {
		r, err := search.Optimal(context.Background(), p, payload)
		if err != nil {
			t.Fatal(err)
		}
		for side, steps := range map[string][]pipeline.Step{"send": r.Send, "receive": r.Receive} {
			sum := 0
			for _, s := range steps {
				sum += s.Bytes
			}
			if sum != payload {
				t.Errorf("%s: %v adds up to %d of %d bytes", side, steps, sum, payload)
			}
		}
	}
}

func TestBadPayloads(t *testing.T) {
	p, err := profile.Hosts.Load("alcor")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{-1, 0, search.MaxPayload + 1} {
		if _, err := search.Optimal(context.Background(), p, n); !errors.Is(err, option.ErrBad) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

func BenchmarkOptimal(b *testing.B) {
	p, err := profile.Hosts.Load("p6-natoma")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := search.Optimal(context.Background(), p, 8192); err != nil {
			b.Fatal(err)
		}
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
	p, err := profile.Hosts.Load("p6-natoma")
	if err != nil {
		t.Fatal(err)
	}
	for _, looks := range []int{0, 1, 100, 3000} {
		left := looks
		if _, err := search.Optimal(limited{t.Context(), &left}, p, search.MaxPayload); !errors.Is(err, context.Canceled) {
			t.Errorf("after %d looks: %v", looks, err)
		}
		if left < -4 {
			t.Errorf("it went on for %d looks", -left)
		}
	}
	none := 0
	log := []dmalog.Record{{Engine: dmalog.NetTx, End: 1000, Bytes: 8192}}
	if _, err := search.Answer(limited{t.Context(), &none}, p, 8192, log); !errors.Is(err, context.Canceled) {
		t.Errorf("the answer to pulses: %v", err)
	}
}
