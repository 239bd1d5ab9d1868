package drivercost_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/trapeze-nic/trapeze/lab/internal/bench"
	"github.com/trapeze-nic/trapeze/lab/internal/drivercost"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun(t *testing.T) {
	parts := 0
	r, err := drivercost.Run(t.Context(), drivercost.Options{For: 20 * time.Millisecond, Core: bench.Cores()[0], Progress: func() { parts++ }})
	if err != nil {
		t.Fatal(err)
	}
	if parts != drivercost.Parts || len(r.Costs) != 4 || !(r.Clock > 0) {
		t.Errorf("%d parts, %+v", parts, r)
	}
	for _, c := range r.Costs {
		for _, v := range []float64{c.Ns, c.Median, c.Cycles, c.Mock} {
			if !(v > 0) || math.IsInf(v, 0) {
				t.Errorf("%+v", c)
			}
		}
		if c.Median < c.Ns || c.Batch != 1 && c.Batch != drivercost.MaxBatch {
			t.Errorf("%+v", c)
		}
	}
}

// TestRound: each round posts, rings and takes back what it says, without an
// allocation; the device is told of all of it.
func TestRound(t *testing.T) {
	t.Setenv("TRAPEZE_TELEMETRY", "off") // its start allocates
	for _, batch := range []int{1, 2, drivercost.MaxBatch} {
		for _, withCQ := range []bool{false, true} {
			t.Run(fmt.Sprint(batch, withCQ), func(t *testing.T) {
				r, err := drivercost.New(t.Context(), batch, withCQ)
				if err != nil {
					t.Fatal(err)
				}
				const rounds = 200 // around the rings
				allocs := testing.AllocsPerRun(rounds-1, func() {
					if err := r.Round(); err != nil {
						t.Fatal(err)
					}
				})
				if allocs != 0 {
					t.Errorf("%v allocations", allocs)
				}
				if got := r.Rung(); got != uint32(rounds*batch) {
					t.Errorf("the doorbell says %d, want %d", got, rounds*batch)
				}
				if err := r.Close(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

func TestBadOptions(t *testing.T) {
	for _, o := range []drivercost.Options{{}, {For: time.Hour}} {
		if _, err := drivercost.Run(t.Context(), o); !errors.Is(err, drivercost.ErrOptions) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	for _, batch := range []int{-1, 0, 3, 2 * drivercost.MaxBatch} {
		if _, err := drivercost.New(t.Context(), batch, false); !errors.Is(err, drivercost.ErrOptions) {
			t.Errorf("batch of %d: %v", batch, err)
		}
	}
	stopped := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(50*time.Millisecond, func() { cancel(stopped) })
	if _, err := drivercost.Run(ctx, drivercost.Options{For: time.Minute, Core: -1}); !errors.Is(err, stopped) {
		t.Errorf("got %v", err)
	}
}
