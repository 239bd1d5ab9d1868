package bench_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/trapeze-nic/trapeze/lab/internal/bench"
)

// task is a short measurement over UDP, which every machine has.
func task(test bench.Test, wire string) bench.Task {
	return bench.Task{Wire: wire, Spec: bench.Spec{Test: test, Role: bench.Source, Bytes: 64, VIs: 1, Window: 4,
		Reliability: "reliable-delivery", Nanoseconds: int64(50 * time.Millisecond), Core: -1}}
}

func TestRun(t *testing.T) {
	for _, wire := range []string{"udp", "memory", "vfio-user"} {
		for _, test := range []bench.Test{bench.Latency, bench.Bandwidth, bench.Put, bench.Get} {
			t.Run(wire+" "+string(test), func(t *testing.T) {
				r, err := bench.Run(context.Background(), task(test, wire))
				if err != nil {
					t.Fatal(err)
				}
				s := r.Stream()
				if s.Messages == 0 || s.Bytes != 64*s.Messages || s.Elapsed <= 0 || s.MessageRate() <= 0 || s.MBPerSecond() <= 0 {
					t.Errorf("%+v", s)
				}
				if (test != bench.Bandwidth) != (s.Latencies != nil) {
					t.Fatalf("latencies of a %s: %v", test, s.Latencies)
				}
				if test != bench.Bandwidth && (s.Percentile(50) <= 0 || s.Percentile(99.9) < s.Percentile(50)) {
					t.Errorf("p50 %v us, p99.9 %v us", s.Percentile(50), s.Percentile(99.9))
				}
			})
		}
	}
}

func TestRunManyVIsUnreliable(t *testing.T) {
	many := task(bench.Bandwidth, "udp")
	many.Spec.VIs, many.Spec.Reliability, many.Spec.Garbage = 5, "unreliable", 1e6
	r, err := bench.Run(context.Background(), many)
	if err != nil {
		t.Fatal(err)
	}
	if r.Stream() != &r.Echo {
		t.Error("what arrives on unreliable VIs is not counted where it arrives")
	}
	if r.Source.Mallocs == 0 {
		t.Error("nobody allocated anything")
	}
}

func TestRunEndsWithContext(t *testing.T) {
	for _, test := range []bench.Test{bench.Latency, bench.Put, bench.Get} {
		long := task(test, "udp")
		long.Spec.Nanoseconds = int64(time.Hour)
		stopped := errors.New("stopped")
		ctx, cancel := context.WithCancelCause(context.Background())
		time.AfterFunc(200*time.Millisecond, func() { cancel(stopped) })
		if _, err := bench.Run(ctx, long); !errors.Is(err, stopped) {
			t.Errorf("%s: got %v", test, err)
		}
	}
}

// TestRunRDMA: writes and reads of all kinds of lengths, on VIs that take turns. A write
// that is not seen, or a read that does not bring the other end's bytes, ends the
// measurement with an error.
func TestRunRDMA(t *testing.T) {
	for _, test := range []bench.Test{bench.Put, bench.Get} {
		for _, bytes := range []int{1, 2, 3, 13, 4096, 70_000} {
			x := task(test, "udp")
			x.Spec.Bytes, x.Spec.VIs, x.Spec.Nanoseconds = bytes, 3, int64(5*time.Millisecond)
			r, err := bench.Run(context.Background(), x)
			if err != nil {
				t.Fatalf("%s of %d bytes: %v", test, bytes, err)
			}
			if r.Source.Messages == 0 || r.Source.Bytes != uint64(bytes)*r.Source.Messages || r.Source.Percentile(50) <= 0 {
				t.Errorf("%s of %d bytes: %+v", test, bytes, r.Source)
			}
			// The echo has answered each write, also those that nobody timed, and has no part
			// in reads.
			if writes := r.Echo.Messages; test == bench.Put && writes < r.Source.Messages/2 || test == bench.Get && writes != 0 {
				t.Errorf("%s of %d bytes: the source counts %d, the echo %d", test, bytes, r.Source.Messages, writes)
			}
		}
	}
	x := task(bench.Put, "udp")
	x.Spec.Reliability = "unreliable"
	if _, err := bench.Run(context.Background(), x); err != nil {
		t.Errorf("on an unreliable VI: %v", err)
	}
}

func TestValidate(t *testing.T) {
	for _, tt := range []struct {
		name  string
		spoil func(*bench.Task)
	}{
		{"test", func(x *bench.Task) { x.Spec.Test = "speed" }},
		{"role", func(x *bench.Task) { x.Spec.Role = "server" }},
		{"negative size", func(x *bench.Task) { x.Spec.Bytes = -1 }},
		{"size", func(x *bench.Task) { x.Spec.Bytes = 1<<30 + 1 }},
		{"no VI", func(x *bench.Task) { x.Spec.VIs = 0 }},
		{"too many VIs", func(x *bench.Task) { x.Spec.VIs = 4097 }},
		{"window", func(x *bench.Task) { x.Spec.Window = 0 }},
		{"memory", func(x *bench.Task) { x.Spec.Bytes, x.Spec.VIs, x.Spec.Window = 1<<20, 4096, 4096 }},
		{"reliability", func(x *bench.Task) { x.Spec.Reliability = "mostly" }},
		{"no time", func(x *bench.Task) { x.Spec.Nanoseconds = 0 }},
		{"too long", func(x *bench.Task) { x.Spec.Nanoseconds = int64(2 * time.Hour) }},
		{"core", func(x *bench.Task) { x.Spec.Core = -2 }},
		{"garbage", func(x *bench.Task) { x.Spec.Garbage = -1 }},
		{"wire", func(x *bench.Task) { x.Wire = "string" }},
		{"placement", func(x *bench.Task) { x.Placement = "elsewhere" }},
		{"placement of engines elsewhere", func(x *bench.Task) { x.Wire, x.Placement = "vfio-user", "inline" }},
		{"write of nothing", func(x *bench.Task) { x.Spec.Test, x.Spec.Bytes = bench.Put, 0 }},
		{"read of nothing", func(x *bench.Task) { x.Spec.Test, x.Spec.Bytes = bench.Get, 0 }},
		{"read on an unreliable VI", func(x *bench.Task) { x.Spec.Test, x.Spec.Reliability = bench.Get, "unreliable" }},
		{"VIs of one process", func(x *bench.Task) { x.Wire, x.Spec.VIs = "memory", 2 }},
	} {
		x := task(bench.Latency, "udp")
		tt.spoil(&x)
		if err := x.Validate(); !errors.Is(err, bench.ErrSpec) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	x := task(bench.Latency, "udp")
	if err := x.Validate(); err != nil {
		t.Error(err)
	}
	x.Spec.Core = 4000
	if _, err := bench.Work(context.Background(), x.Spec, func() {}); !errors.Is(err, bench.ErrCore) {
		t.Errorf("a core that is not there: %v", err)
	}
}

func TestSideJSON(t *testing.T) {
	want := bench.Side{Messages: 3, Bytes: 192, Elapsed: time.Second, CPU: time.Millisecond, Cycles: 4, Mallocs: 5, Collections: 6,
		Latencies: &bench.Histogram{Histogram: hdrhistogram.New(1, 1e10, 3)}}
	for _, v := range []int64{100, 200, 300} {
		if err := want.Latencies.RecordValue(v); err != nil {
			t.Fatal(err)
		}
	}
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got bench.Side
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if got.Percentile(50) != 0.2 || got.Latencies.TotalCount() != 3 {
		t.Errorf("p50 %v us of %d", got.Percentile(50), got.Latencies.TotalCount())
	}
	got.Latencies, want.Latencies = nil, nil
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if err := json.Unmarshal([]byte(`{"latencies":"AAAA"}`), &got); err == nil {
		t.Error("nonsense was taken for latencies")
	}
}
