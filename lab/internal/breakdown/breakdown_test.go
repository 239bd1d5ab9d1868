package breakdown_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/lab/internal/bench"
	"github.com/trapeze-nic/trapeze/lab/internal/breakdown"
)

// TestMain makes this program also the workers of the measurement over shm.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == bench.WorkerCommand {
		if err := bench.RunWorker(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func TestRun(t *testing.T) {
	sizes := []int{0, 64, 8 << 10, breakdown.MaxBytes}
	switch {
	case testing.Short(): // under the race detector each takes a minute
		sizes = sizes[2:3]
	case !soak.Wanted():
		sizes = sizes[3:]
	}
	for _, bytes := range sizes {
		t.Run(fmt.Sprint(bytes), func(t *testing.T) {
			parts := 0
			r, err := breakdown.Run(context.Background(), breakdown.Options{Bytes: bytes, For: 20 * time.Millisecond, Progress: func() { parts++ }})
			if err != nil {
				t.Fatal(err)
			}
			if parts != breakdown.Parts {
				t.Errorf("%d parts were done, %d foretold", parts, breakdown.Parts)
			}
			var names []string
			sum := 0.0
			for _, s := range r.Steps {
				names = append(names, s.Name)
				sum += s.Ns
				if s.Ns < 0 || math.IsNaN(s.Ns) || s.What == "" {
					t.Errorf("%+v", s)
				}
			}
			if want := []string{"post", "doorbell", "fetch", "copy", "wire", "deliver", "completion", "poll", "rest"}; !slices.Equal(names, want) {
				t.Errorf("steps %v, want %v", names, want)
			}
			if math.Abs(sum-r.Sum) > 1e-6*r.Sum || math.Abs(r.Sum+r.Remainder-r.Whole) > 1e-6*r.Whole || r.Whole <= 0 || r.Bytes != bytes {
				t.Errorf("%g in steps, sum %g, remainder %g, whole %g", sum, r.Sum, r.Remainder, r.Whole)
			}
			if a, m := r.Spent(breakdown.Application), r.Spent(breakdown.MessageLayer); a <= 0 || m <= 0 || math.Abs(a+m-r.Sum) > 1e-6*r.Sum {
				t.Errorf("%g for the application and %g for the message layer, sum %g", a, m, r.Sum)
			}
			if len(r.Limits.Between) != 1 || len(r.Limits.Copies) == 0 {
				t.Fatalf("%+v", r.Limits)
			}
			if b := r.Limits.Between[0]; b.P50 < b.P50Spread[0] || b.P50 > b.P50Spread[1] || b.P50Spread[0] <= 0 || b.P999 < b.P50 || b.Crossing != 0 || b.Rounds < 2 || b.Cores == nil || len(b.Cores) > 0 {
				t.Errorf("%+v", b)
			}
			for _, c := range r.Limits.Copies {
				if c.Ns <= 0 || c.GBs <= 0 {
					t.Errorf("%+v", c)
				}
			}
		})
	}
}

// TestPairs: each pair of cores has its figures, and the cores are as far from each other
// as a cache line says.
func TestPairs(t *testing.T) {
	cores := bench.Cores()
	if len(cores) < 2 {
		t.Skip("needs two cores")
	}
	if testing.Short() {
		t.Skip("takes a minute under the race detector, and what it measures TestRun does too")
	}
	pairs := []bench.Pair{{Cores: cores[:2], Proximity: bench.TwoCores}, {Cores: []int{cores[1], cores[0]}, Proximity: bench.OneCore}}
	r, err := breakdown.Run(context.Background(), breakdown.Options{For: 10 * time.Millisecond, Pairs: pairs})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[bench.Proximity]bool{}
	for _, b := range r.Limits.Between {
		seen[b.Proximity] = true
		if b.Crossing <= 0 || b.P50 <= 0 || len(b.Cores) != 2 {
			t.Errorf("%+v", b)
		}
	}
	if len(seen) != 2 {
		t.Errorf("%+v", r.Limits.Between)
	}
	if _, err := breakdown.Run(context.Background(), breakdown.Options{For: 10 * time.Millisecond, Pairs: []bench.Pair{{Cores: []int{cores[0], 4000}}}}); !errors.Is(err, bench.ErrCore) {
		t.Errorf("a core that is not there: %v", err)
	}
}

func TestBadOptions(t *testing.T) {
	for _, o := range []breakdown.Options{{Bytes: -1, For: time.Second}, {Bytes: breakdown.MaxBytes + 1, For: time.Second}, {}, {For: time.Hour}} {
		if _, err := breakdown.Run(context.Background(), o); !errors.Is(err, breakdown.ErrOptions) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	stopped := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(context.Background())
	time.AfterFunc(50*time.Millisecond, func() { cancel(stopped) })
	if _, err := breakdown.Run(ctx, breakdown.Options{For: time.Minute}); !errors.Is(err, stopped) {
		t.Errorf("got %v", err)
	}
}
