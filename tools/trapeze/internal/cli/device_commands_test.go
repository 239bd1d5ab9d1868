package cli_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/tools/internal/shell"
)

func TestInfo(t *testing.T) {
	var r struct {
		Address, Backend, PCI, Version, MAC string
		MTU                                 int
		SRAM                                int  `json:"sram_bytes"`
		SRAMFree                            *int `json:"sram_free_bytes"`
		SRAMUsed                            *int `json:"sram_used_bytes"`
		Features                            []string
		Limits                              map[string]int
		BARs                                []struct{ Bar, Bytes int }
		Blocks                              []struct{ Name, Version string }
		Health                              map[string]any
		Counters                            map[string]uint64
	}
	decode(t, run(t, "info", "--device", "emu:?mac=02:00:00:00:00:2a", "--json"), &r)
	if r.Address != "emu:?mac=02:00:00:00:00:2a" || r.Backend != "emulator" || r.PCI != "1234:7250" || r.MAC != "02:00:00:00:00:2a" {
		t.Errorf("got %+v", r)
	}
	should.Hold(t, r.SRAMFree != nil && *r.SRAMFree > 0 && *r.SRAMFree < r.SRAM && r.SRAMUsed != nil && *r.SRAMUsed == 0, "got %+v", r)
	if r.MTU < datasheet.MinMTU || r.SRAM == 0 || r.Limits["transfer_bytes"] == 0 || r.Limits["endpoints"] == 0 || !slices.Contains(r.Features, "ring") {
		t.Errorf("got %+v", r)
	}
	for _, f := range r.Features {
		should.Hold(t, !strings.HasPrefix(f, "bit-"), "feature %s has no name", f)
	}
	if r.Health["ready"] != true || r.Health["fault"] != 0.0 || len(r.Counters) != int(datasheet.CounterCount) {
		t.Errorf("health %v, counters %v", r.Health, r.Counters)
	}
	var blocks []string
	for _, b := range r.Blocks {
		blocks = append(blocks, b.Name+" "+b.Version)
	}
	for _, want := range []string{"identity 1.0", "health 1.0", "admin 1.0", "counters 1.0"} {
		should.Hold(t, slices.Contains(blocks, want), "no block %q in %v", want, blocks)
	}
	should.Hold(t, len(r.BARs) == 3 && r.BARs[0].Bytes == datasheet.BAR0Size && r.BARs[1].Bar == 2 && r.BARs[2].Bar == 4, "BARs %+v", r.BARs)
	run(t, "info").exit(t, shell.ExitOK, "  ready         true\n", "identity   1.0")
}

func TestPing(t *testing.T) {
	type report map[string]any
	for _, args := range [][]string{{}, {"--unreliable"}, {"--size", "0"}, {"--size", "100000"}} {
		var r report
		decode(t, run(t, append([]string{"ping", "--json", "-c", "5", "-i", "1ms"}, args...)...), &r)
		should.Hold(t, r["sent"] == 5.0 && r["received"] == 5.0 && r["lost"] == 0.0 && r["loss"] == 0.0 && r["corrupt"] == 0.0, "%v: %v", args, r)
		last := 0.0
		for _, key := range []string{"min_us", "p50_us", "p99_us", "max_us"} {
			v, ok := r[key].(float64)
			if !ok || v < last {
				t.Errorf("%v: %s is %v after %v", args, key, r[key], last)
			}
			last = v
		}
	}
	o := run(t, "ping", "-c", "3", "-i", "0")
	if o.code != shell.ExitOK || strings.Count(o.stdout, "64 bytes from ") != 3 || !strings.Contains(o.stdout, "sent         3\nreceived     3\nlost         0\n") {
		t.Errorf("got %+v", o)
	}
}

// signalled returns a context that ends as if SIGINT had come after d.
func signalled(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancelCause(context.Background())
	timer := time.AfterFunc(d, func() { cancel(&shell.SignalError{Number: 2, Name: "SIGINT"}) })
	t.Cleanup(func() { timer.Stop(); cancel(nil) })
	return ctx
}

// interrupted runs a command that SIGINT ends after a while. It is run again, for longer, as long as a busy machine had no time
// before for what stdout must say.
func interrupted(t *testing.T, stdout string, args ...string) (o outcome) {
	t.Helper()
	for while := 300 * time.Millisecond; while < time.Minute && !strings.Contains(o.stdout, stdout); while *= 2 {
		o = runWith(signalled(t, while), nil, args...)
	}
	return o
}

func TestPingInterrupted(t *testing.T) {
	tests := map[string]func(*testing.T){}
	for count, want := range map[string]int{"0": shell.ExitOK, "1000000": 130} {
		tests[count] = func(t *testing.T) {
			const says = "p50_us "
			o := interrupted(t, says, "ping", "--count", count, "--quiet", "--interval", "1ms")
			should.Hold(t, o.code == want && strings.Contains(o.stdout, says), "%+v", o)
		}
	}
	waittest.Together(t, tests)
}

func TestPingNobody(t *testing.T) {
	o := run(t, "ping", "--device", "emu:?wire=udp://127.0.0.1:0&peer=127.0.0.1:9", "--timeout", "300ms")
	o.exit(t, shell.ExitTimeout, "no NIC answered", "trapeze ping --serve")
}

func TestDemo(t *testing.T) {
	input := filepath.Join(t.TempDir(), "input")
	must.OK(t, os.WriteFile(input, make([]byte, 1_234_567), 0o600))
	type file struct {
		Bytes    uint64
		Sent     string  `json:"sha256_sent"`
		Received string  `json:"sha256_received"`
		Rate     float64 `json:"mb_per_s"`
	}
	var r struct {
		File, Reverse      file
		Latency, Bandwidth []map[string]float64
	}
	decode(t, run(t, "demo", "--duration", "20ms", "--json", "--input", input), &r)
	want := digestOf(t, input)
	for _, f := range []file{r.File, r.Reverse} {
		should.Hold(t, f.Bytes == 1_234_567 && f.Rate > 0 && f.Sent == want && f.Received == want, "file %+v", f)
	}
	var sizes []float64
	for _, l := range r.Latency {
		sizes = append(sizes, l["bytes"])
		should.Hold(t, l["p50_us"] > 0 && l["p50_us"] <= l["p99_us"] && l["p99_us"] <= l["p999_us"] && len(l) == 4, "latency %v", l)
	}
	for _, b := range r.Bandwidth {
		sizes = append(sizes, b["bytes"])
		should.Hold(t, b["mb_per_s"] > 0 && len(b) == 2, "bandwidth %v", b)
	}
	should.Same(t, sizes, []float64{64, 4096, 8192, 65536, 8192, 65536}, "sizes")
}

func TestDemoInterrupted(t *testing.T) {
	o := runWith(signalled(t, 300*time.Millisecond), nil, "demo")
	should.Hold(t, o.code == 130 && strings.Count(o.stderr, "\n") == 1 && strings.Contains(o.stderr, "SIGINT"), "got %+v", o)
}
