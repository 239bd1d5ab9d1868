package bench_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/lab/internal/bench"
)

func TestRunIdle(t *testing.T) {
	for _, place := range bench.IdlePlaces() {
		t.Run(string(place), func(t *testing.T) {
			task := bench.IdleTask{Place: place, Idle: 20 * time.Millisecond, Pause: time.Millisecond, Count: 5}
			r, err := bench.RunIdle(context.Background(), task)
			if err != nil {
				t.Fatal(err)
			}
			if n := r.Latencies.TotalCount(); n != 5 {
				t.Errorf("%d messages were measured, not 5", n)
			}
			if r.Latencies.Min() < 1 || r.Idle < task.Idle || r.Waking <= 0 || r.IdleCPU < 0 || r.WakingCPU < 0 {
				t.Errorf("%+v", r)
			}
		})
	}
}

// TestRunIdleLong: a pause for which a NIC that does not run is taken for dead.
func TestRunIdleLong(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 5 s")
	}
	task := bench.IdleTask{Place: bench.IdleSharedInline, Idle: 5 * time.Second, Pause: time.Millisecond, Count: 1}
	if r, err := bench.RunIdle(context.Background(), task); err != nil || r.Idle < task.Idle {
		t.Errorf("%v, %+v", err, r)
	}
}

func TestRunIdleEndsWithContext(t *testing.T) {
	for _, place := range bench.IdlePlaces() {
		stopped := errors.New("stopped")
		ctx, cancel := context.WithCancelCause(context.Background())
		time.AfterFunc(200*time.Millisecond, func() { cancel(stopped) })
		task := bench.IdleTask{Place: place, Idle: 10 * time.Minute, Pause: time.Second, Count: 1}
		if _, err := bench.RunIdle(ctx, task); !errors.Is(err, stopped) {
			t.Errorf("%s: %v", place, err)
		}
	}
}

func TestIdleTask(t *testing.T) {
	good := bench.IdleTask{Place: bench.IdleSharedInline, Idle: time.Second, Pause: time.Millisecond, Count: 1}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*bench.IdleTask){
		"place":     func(x *bench.IdleTask) { x.Place = "udp-inline" },
		"no place":  func(x *bench.IdleTask) { x.Place = "" },
		"not idle":  func(x *bench.IdleTask) { x.Idle = 0 },
		"long idle": func(x *bench.IdleTask) { x.Idle = time.Hour },
		"no pause":  func(x *bench.IdleTask) { x.Pause = 0 },
		"pause":     func(x *bench.IdleTask) { x.Pause = time.Minute },
		"count":     func(x *bench.IdleTask) { x.Count = 0 },
		"too many":  func(x *bench.IdleTask) { x.Count = 1_000_001 },
	} {
		x := good
		spoil(&x)
		if _, err := bench.RunIdle(context.Background(), x); !errors.Is(err, bench.ErrSpec) {
			t.Errorf("%s: %v", name, err)
		}
		spec, err := json.Marshal(map[string]any{"idle": map[string]any{"Task": x, "Waiter": "emu:", "Sender": ""}})
		if err != nil {
			t.Fatal(err)
		}
		if err := bench.RunWorker(context.Background(), strings.NewReader(string(spec)), io.Discard); !errors.Is(err, bench.ErrSpec) {
			t.Errorf("worker, %s: %v", name, err)
		}
	}
	for _, nonsense := range []string{"", "{", `{"Unknown":1}`, "[]", "{}"} {
		if err := bench.RunWorker(context.Background(), strings.NewReader(nonsense), io.Discard); !errors.Is(err, bench.ErrSpec) {
			t.Errorf("worker, %q: %v", nonsense, err)
		}
	}
	var r bench.IdleResult
	if err := json.Unmarshal([]byte(`{"Latencies":"AAAA"}`), &r); err == nil {
		t.Error("nonsense was taken for latencies")
	}
}
