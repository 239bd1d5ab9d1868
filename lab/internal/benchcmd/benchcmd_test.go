package benchcmd_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	// Make "emu:" addresses known.
	_ "github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/internal/plot"
	"github.com/trapeze-nic/trapeze/lab/internal/bench"
	"github.com/trapeze-nic/trapeze/lab/internal/benchcmd"
)

// TestMain makes this program also the hidden commands of measuring processes.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "bench-") {
		if err := run(context.Background(), os.Stdout, false, os.Args[1:]...); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func run(ctx context.Context, out io.Writer, asJSON bool, args ...string) error {
	return runShowing(ctx, out, io.Discard, "none", asJSON, args...)
}

// runShowing is run that shows its progress.
func runShowing(ctx context.Context, out, shown io.Writer, style string, asJSON bool, args ...string) error {
	root := &cobra.Command{Use: "trapeze-lab", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(benchcmd.Commands(&command.Env{Stdout: out, Stderr: shown, JSON: asJSON, Progress: style})...)
	root.SetArgs(args)
	root.SetOut(out)
	return root.ExecuteContext(ctx)
}

// both runs a command for its table and for its JSON.
func both(t *testing.T, args ...string) (table string, object map[string]any) {
	t.Helper()
	var text, encoded bytes.Buffer
	if err := run(t.Context(), &text, false, args...); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), &encoded, true, args...); err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(&encoded)
	if err := d.Decode(&object); err != nil {
		t.Fatal(err)
	}
	if d.More() {
		t.Error("more than one JSON object")
	}
	if e, ok := object["environment"].(map[string]any); !ok || e["go"] == "" {
		t.Errorf("environment %v", object["environment"])
	}
	return text.String(), object
}

// need checks that an object has exactly these keys.
func need(t *testing.T, object any, keys ...string) {
	t.Helper()
	m, ok := object.(map[string]any)
	if !ok {
		t.Fatalf("%v is not an object", object)
	}
	var have []string
	for k := range m {
		have = append(have, k)
	}
	slices.Sort(have)
	slices.Sort(keys)
	if !slices.Equal(have, keys) {
		t.Errorf("keys %v, want %v", have, keys)
	}
}

func mention(t *testing.T, table string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(table, w) {
			t.Errorf("the table does not mention %q:\n%s", w, table)
		}
	}
}

func TestScaling(t *testing.T) {
	args := []string{"bench", "scaling", "--curves", "vis,cqs,regions,sizes-memory,memory", "--max-vis", "5", "--max-regions", "12",
		"--max-bytes", "64", "--duration", "1ms"}
	table, object := both(t, args...)
	mention(t, table, "vis: ", "vis-setup: ", "cqs: ", "regions: ", "regions-setup: ", "sizes-memory: ", "residual", "64 B", "Memory for one more", "region")
	need(t, object, "environment", "curves", "memory")
	for _, c := range object["curves"].([]any) {
		need(t, c, "name", "what", "of", "unit", "points", "growth")
		need(t, c.(map[string]any)["growth"], "kind", "base", "slope", "residual", "others")
		need(t, c.(map[string]any)["points"].([]any)[0], "n", "value", "low", "high")
	}
	for _, m := range object["memory"].([]any) {
		need(t, m, "of", "count", "host_heap_bytes", "device_heap_bytes", "shared_bytes", "total_bytes", "files")
	}

	file := filepath.Join(t.TempDir(), "scaling.svg")
	args = append(args, "--svg", file)
	if err := run(t.Context(), io.Discard, true, args...); err != nil {
		t.Fatal(err)
	}
	svg, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	mention(t, string(svg), ">vis<", ">regions<", ">sizes-memory<", "One-way latency", "logarithmic axis")
	if strings.Contains(string(svg), ", linear") {
		t.Error("the picture calls a curve linear beside a logarithmic axis")
	}
	if strings.Contains(string(svg), "setup") {
		t.Error("the picture has curves of another kind")
	}
	if err := run(t.Context(), io.Discard, true, args...); !errors.Is(err, os.ErrExist) {
		t.Errorf("a file that exists: %v", err)
	}
}

func TestBreakdown(t *testing.T) {
	if testing.Short() {
		t.Skip("takes two minutes under the race detector, and TestBreakdownEager runs the same")
	}
	table, object := both(t, "bench", "breakdown", "--bytes", "1K", "--duration", "20ms")
	mention(t, table, "One message of 1 KiB", "post", "doorbell", "fetch", "copy", "wire", "deliver", "completion", "poll", "rest",
		"sum", "remainder", "whole", "Limits", "this message, two processes")
	need(t, object, "environment", "bytes", "steps", "sum_ns", "whole_ns", "remainder_ns", "border_ns", "limits")
	need(t, object["steps"].([]any)[0], "step", "ns", "layer", "what")
	need(t, object["limits"], "copies", "between")
	between := object["limits"].(map[string]any)["between"].([]any)[0].(map[string]any)
	keys := []string{"cores", "crossing_ns", "rounds", "p50_ns", "p50_spread_ns", "p999_ns"}
	if between["proximity"] != nil { // not every kernel tells it
		keys = append(keys, "proximity")
	}
	need(t, between, keys...)
	if object["ordinary"] != nil {
		t.Error("ordinary memory stands beside ordinary memory")
	}
}

// TestBreakdownEager: the steps stand beside those without eager memory. It runs where TestBreakdown does not.
func TestBreakdownEager(t *testing.T) {
	if !testing.Short() && !soak.Wanted() {
		t.Skip("measures twice what TestBreakdown measures: .ci/run soak has it")
	}
	table, object := both(t, "bench", "breakdown", "--eager", "--duration", "20ms")
	mention(t, table, "eager", "ordinary", "fetch", "whole")
	need(t, object["ordinary"], "bytes", "steps", "sum_ns", "whole_ns", "remainder_ns", "border_ns", "limits")
	ordinary, eager := object["ordinary"].(map[string]any)["steps"].([]any), object["steps"].([]any)
	if len(ordinary) != len(eager) || len(eager) == 0 {
		t.Errorf("%d steps, %d without eager memory", len(eager), len(ordinary))
	}
}

func TestDriver(t *testing.T) {
	table, object := both(t, "bench", "driver", "--duration", "20ms")
	mention(t, table, "The driver alone", "mock_ns", "true", "false", "32", "cycles", "GHz")
	need(t, object, "environment", "costs", "clock_ghz")
	for _, c := range object["costs"].([]any) {
		need(t, c, "batch", "cq", "ns", "median_ns", "cycles", "mock_ns")
	}
}

func TestIdle(t *testing.T) {
	table, object := both(t, "bench", "idle", "--places", "runtime,memory-inline,shm-thread", "--duration", "50ms", "--pause", "2ms")
	mention(t, table, "runtime", "memory-inline", "shm-thread", "p99_us", "Goals: less than 1 %")
	need(t, object, "environment", "goals", "results")
	results := object["results"].([]any)
	if len(results) != 3 {
		t.Fatalf("%v", results)
	}
	for i, r := range results {
		need(t, r, "place", "idle_s", "idle_cpu_percent", "messages", "pause_ms", "waking_cpu_percent", "p50_us", "p99_us", "max_us", "meets_goals")
		if meets := r.(map[string]any)["meets_goals"]; (meets == nil) != (i == 0) {
			t.Errorf("meets_goals is %v of %v", meets, r)
		}
	}
}

func TestUsage(t *testing.T) {
	for _, args := range []string{
		"scaling --curves speed", "scaling --max-vis 0", "scaling --max-regions 1000001", "scaling --max-bytes 17M", "scaling --max-bytes much",
		"scaling --duration 0s", "scaling --cores 4000,1",
		"--tests speed", "--tests put --sizes 0", "--tests get --reliability unreliable", "compare --tests speed", "compare --rounds 0",
		"breakdown --bytes 65K", "breakdown --bytes -1", "breakdown --duration 1ms", "breakdown --cores one",
		"driver --duration 1ms", "idle --places here", "idle --duration 1ms", "idle --pause 0s", "idle --pause 1m",
	} {
		if err := run(t.Context(), io.Discard, false, append([]string{"bench"}, strings.Fields(args)...)...); !errors.Is(err, option.ErrBad) {
			t.Errorf("%s: %v", args, err)
		}
	}
	for _, command := range []string{"scaling", "breakdown", "driver", "idle"} {
		var help bytes.Buffer
		if err := run(t.Context(), &help, false, "bench", command, "--help"); err != nil {
			t.Error(err)
		}
		mention(t, help.String(), "Examples:", "JSON keys:", "--duration")
	}
}

// TestCompare: each row says on which cores it was measured, and how far from each other
// these were.
func TestCompare(t *testing.T) {
	if len(bench.Cores()) < 2 {
		t.Skip("a comparison takes two cores")
	}
	table, object := both(t, "bench", "compare", "--tests", "rate", "--peers", "unix", "--rounds", "1", "--duration", "2ms")
	mention(t, table, "crossing ns", "rounds", "ratio to best", "rate", "64 B")
	for _, r := range object["rows"].([]any) {
		row := r.(map[string]any)
		keys := []string{"test", "bytes", "unit", "cores", "crossing_ns", "crossing_spread_ns", "rounds", "unsteady_rounds", "better", "ours", "ours_spread",
			"peers", "peers_spread", "best_peer", "ratio_to_best", "ratio_spread", "involuntary_switches_per_s"}
		if row["proximity"] != nil { // not every kernel tells it
			keys = append(keys, "proximity")
			mention(t, table, row["proximity"].(string))
		}
		need(t, r, keys...)
		if cores := row["cores"].([]any); len(cores) != 2 || row["crossing_ns"].(float64) <= 0 {
			t.Errorf("%v", row)
		}
	}
}

// TestRDMA: put and get have latencies, curves of their own and tags of their own, and a
// comparison has them beside those who can do them.
func TestRDMA(t *testing.T) {
	folder := t.TempDir()
	svg, hdr := filepath.Join(folder, "rdma.svg"), filepath.Join(folder, "rdma.hdr")
	args := []string{"bench", "--tests", "put,get", "--wires", "memory", "--sizes", "64,4K", "--repeat", "1", "--duration", "2ms"}
	table, object := both(t, args...)
	mention(t, table, "put", "get", "64 B", "4 KiB")
	results := object["results"].([]any)
	if len(results) != 4 {
		t.Fatalf("%d results", len(results))
	}
	for _, r := range results {
		if row := r.(map[string]any); row["p50_us"].(float64) <= 0 || row["mb_per_s"].(float64) <= 0 {
			t.Errorf("%v", row)
		}
	}
	if err := run(t.Context(), io.Discard, true, append(args, "--svg", svg, "--hdr", hdr)...); err != nil {
		t.Fatal(err)
	}
	for file, words := range map[string][]string{svg: {">memory, put<", ">memory, get<"}, hdr: {"Tag=put-memory-", "Tag=get-memory-"}} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		mention(t, string(b), words...)
	}
	if len(bench.Cores()) < 2 {
		return
	}
	table, object = both(t, "bench", "compare", "--tests", "put,get", "--peers", "unix", "--wire", "shm", "--rounds", "1", "--duration", "2ms")
	mention(t, table, "put", "get", "64 KiB")
	for _, r := range object["rows"].([]any) {
		row := r.(map[string]any)
		if row["unit"] != "us" || row["better"] != "lower" || row["ours"].(float64) <= 0 || row["ratio_to_best"] != nil {
			t.Errorf("%v", row)
		}
	}
}

// TestHelpOfKeys: the help names every key that is printed.
func TestHelpOfKeys(t *testing.T) {
	for _, command := range [][]string{
		{"bench", "--tests", "latency,bandwidth,put,get", "--wires", "memory", "--sizes", "64", "--repeat", "1", "--duration", "2ms"},
		{"bench", "compare", "--tests", "latency", "--peers", "unix", "--rounds", "1", "--duration", "2ms"},
	} {
		if command[1] == "compare" && len(bench.Cores()) < 2 {
			continue
		}
		var help bytes.Buffer
		if err := run(t.Context(), &help, false, append(slices.Clone(command), "--help")...); err != nil {
			t.Fatal(err)
		}
		_, keys, _ := strings.Cut(help.String(), "JSON keys:")
		_, object := both(t, command...)
		named(t, keys, object["environment"])
		for _, list := range []string{"results", "rows"} {
			rows, _ := object[list].([]any)
			for _, r := range rows {
				named(t, keys, r)
			}
		}
	}
}

// named checks that help names each key of an object.
func named(t *testing.T, help string, object any) {
	t.Helper()
	for key := range object.(map[string]any) {
		if !strings.Contains(help, key) {
			t.Errorf("the help does not name %s", key)
		}
	}
}

// TestComparePicture: the picture of a comparison has a curve for us and for each peer.
func TestComparePicture(t *testing.T) {
	if len(bench.Cores()) < 2 {
		t.Skip("a comparison takes two cores")
	}
	file := filepath.Join(t.TempDir(), "latency.svg")
	args := []string{"bench", "compare", "--tests", "latency,bandwidth", "--peers", "unix,tcp", "--rounds", "1", "--duration", "2ms", "--svg", file}
	if err := run(t.Context(), io.Discard, false, args...); err != nil {
		t.Fatal(err)
	}
	svg, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{">trapeze<", ">unix<", ">tcp<", ">One-way latency<", ">Bandwidth of a stream<"} {
		if !strings.Contains(string(svg), want) {
			t.Errorf("the picture does not have %s", want)
		}
	}
	if err := run(t.Context(), io.Discard, false, args...); !errors.Is(err, os.ErrExist) {
		t.Errorf("a file that exists: %v", err)
	}
}

// TestNothingToDraw: what was measured is printed also if there is no picture of it, and the error says why.
func TestNothingToDraw(t *testing.T) {
	file := filepath.Join(t.TempDir(), "one.svg")
	commands := map[string][]string{
		"messages/s":          {"bench", "--wires", "memory", "--sizes", "64", "--repeat", "1", "--duration", "1ms"},
		"Memory for one more": {"bench", "scaling", "--curves", "memory", "--max-vis", "5", "--max-regions", "12"},
	}
	if len(bench.Cores()) > 1 {
		commands["ratio to best"] = []string{"bench", "compare", "--tests", "rate", "--peers", "unix", "--rounds", "1", "--duration", "2ms"}
	}
	for want, args := range commands {
		var text bytes.Buffer
		err := run(t.Context(), &text, false, append(args, "--svg", file)...)
		if !errors.Is(err, plot.ErrEmpty) || !strings.Contains(err.Error(), "two sizes") || !strings.Contains(text.String(), want) {
			t.Errorf("%v: %v, and it printed %q", args, err, &text)
		}
	}
}

// TestMissingPeer: a peer that is not installed is named by the program that looked for it.
func TestMissingPeer(t *testing.T) {
	if len(bench.Cores()) < 2 {
		t.Skip("a comparison takes two cores")
	}
	t.Setenv("PATH", t.TempDir())
	var shown bytes.Buffer
	args := []string{"bench", "compare", "--tests", "rate", "--peers", "ucx", "--rounds", "1", "--duration", "2ms"}
	if err := runShowing(t.Context(), io.Discard, &shown, "none", false, args...); err != nil || !strings.HasPrefix(shown.String(), "trapeze-lab: ucx: not installed") {
		t.Errorf("%v, %q", err, &shown)
	}
}

// stopper stops what writes to it.
type stopper struct{ stop func() }

func (s stopper) Write(b []byte) (int, error) { s.stop(); return len(b), nil }

// TestStopped: a measurement that is stopped prints what it has measured, says that
// this is not all, and fails with what stopped it.
func TestStopped(t *testing.T) {
	if len(bench.Cores()) < 2 {
		t.Skip("a comparison takes two cores")
	}
	why := errors.New("stopped by the test")
	for _, tt := range []struct {
		args, list, row string
	}{
		{"bench compare --tests latency,rate --peers unix --rounds 1000 --duration 2ms", "rows", "latency"},
		{"bench --tests latency --sizes 64 --repeat 1000 --duration 2ms", "results", "latency"},
	} {
		for _, asJSON := range []bool{false, true} {
			ctx, cancel := context.WithCancelCause(t.Context())
			var out bytes.Buffer
			// It shows its progress for the first time when something was measured.
			err := runShowing(ctx, &out, stopper{func() { cancel(why) }}, "plain", asJSON, strings.Fields(tt.args)...)
			cancel(nil)
			if !errors.Is(err, why) {
				t.Errorf("%s: %v", tt.args, err)
			}
			if !asJSON {
				mention(t, out.String(), tt.row, "64 B", "Incomplete", why.Error())
				continue
			}
			var object map[string]any
			if err := json.Unmarshal(out.Bytes(), &object); err != nil {
				t.Fatalf("%s: %v", tt.args, err)
			}
			rows, _ := object[tt.list].([]any)
			says, _ := object["incomplete"].(string)
			// A comparison has a row for each distance that the cores were at.
			others := slices.ContainsFunc(rows, func(r any) bool {
				row := r.(map[string]any)
				return row["test"] != tt.row || row["bytes"] != 64.0
			})
			if len(rows) == 0 || others || !strings.Contains(says, why.Error()) {
				t.Errorf("%s: rows %v, incomplete: %q", tt.args, rows, says)
			}
		}
	}
	// Stopped before there was anything.
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	var out bytes.Buffer
	if err := run(ctx, &out, true, "bench", "--repeat", "1"); !errors.Is(err, why) || out.Len() > 0 {
		t.Errorf("%v, and it printed %q", err, out.String())
	}
}
