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
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	// Make "emu:" addresses known.
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
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

// printed runs a command for its table or its JSON.
func printed(t *testing.T, asJSON bool, args ...string) (text string) {
	t.Helper()
	var out bytes.Buffer
	must.OK(t, run(t.Context(), &out, asJSON, args...))
	return out.String()
}

// picture reads what is drawn in a file.
func picture(t *testing.T, file string) string {
	t.Helper()
	svg := must.Get(os.ReadFile(file))(t)
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		if _, err := d.Token(); err == io.EOF {
			return string(svg)
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// TestLocal: what is measured in this process is printed as a table and as JSON.
func TestLocal(t *testing.T) {
	file := filepath.Join(t.TempDir(), "scaling.svg")
	args := []string{"bench", "scaling", "--curves", "vis,regions", "--max-vis", "5", "--max-regions", "12", "--duration", "1ms", "--svg", file}
	mention(t, printed(t, false, args...), "vis: ", "vis-setup: ", "residual", "Memory for one more", "region")
	svg := picture(t, file)
	mention(t, svg, ">vis<", "logarithmic axis")
	if strings.Contains(svg, ", linear") || strings.Contains(svg, "setup") {
		t.Error("the picture calls a curve linear beside a logarithmic axis, or has curves of another kind")
	}
	should.Fail(t, run(t.Context(), io.Discard, true, args...), os.ErrExist, "a file that exists")
	mention(t, printed(t, false, "bench", "driver", "--duration", "5ms"), "The driver alone", "mock_ns", "true", "false", "32")
	mention(t, printed(t, false, "bench", "idle", "--places", "runtime,memory-inline", "--duration", "20ms", "--pause", "2ms"),
		"runtime", "memory-inline", "p99_us")
	if testing.Short() {
		t.Skip("a breakdown takes a minute under the race detector, and TestJSON has one")
	}
	mention(t, printed(t, false, "bench", "breakdown", "--bytes", "1K", "--duration", "5ms"), "One message of 1 KiB", "post", "deliver", "remainder", "whole")
}

// TestJSON: the keys of each report are those that its help names.
func TestJSON(t *testing.T) {
	commands := [][]string{
		{"bench", "--tests", "latency,bandwidth", "--wires", "memory", "--sizes", "64", "--repeat", "1", "--duration", "2ms"},
		{"bench", "scaling", "--curves", "cqs,regions", "--max-vis", "5", "--max-regions", "12", "--duration", "1ms"},
		{"bench", "breakdown", "--duration", "5ms", "--eager"},
		{"bench", "driver", "--duration", "5ms"},
		{"bench", "idle", "--places", "kernel", "--duration", "20ms", "--pause", "2ms"},
	}
	if len(bench.Cores()) > 1 {
		commands = append(commands, []string{"bench", "compare", "--tests", "rate,latency", "--sizes", "64", "--peers", "unix", "--rounds", "1", "--duration", "2ms"})
	}
	for _, args := range commands {
		help := printed(t, false, append(slices.Clone(args), "--help")...)
		_, keys, _ := strings.Cut(help, "JSON keys:")
		d := json.NewDecoder(strings.NewReader(printed(t, true, args...)))
		var object map[string]any
		if err := d.Decode(&object); err != nil || d.More() {
			t.Fatalf("%v: %v, or more than one object", args, err)
		}
		if e, ok := object["environment"].(map[string]any); !ok || e["go"] == "" {
			t.Errorf("environment %v", object["environment"])
		}
		named(t, keys, object)
		mention(t, help, "Examples:", "--duration")
	}
}

// named checks that help names each key of an object, and of those in it.
func named(t *testing.T, help string, value any) {
	t.Helper()
	switch v := value.(type) {
	case []any:
		for _, each := range v {
			named(t, help, each)
		}
	case map[string]any:
		for key, each := range v {
			should.Contain(t, help, key, "the help does not name")
			named(t, help, each)
		}
	}
}

func mention(t *testing.T, table string, words ...string) {
	t.Helper()
	for _, w := range words {
		should.Contain(t, table, w, "the table does not mention")
	}
}

// TestUsage: what cannot be measured is refused as a mistake of the user's.
func TestUsage(t *testing.T) {
	for _, args := range []string{
		"--tests speed", "--tests put --sizes 0", "--tests get --sizes 0", "--tests get --reliability unreliable", "--tests put --wires unix",
		"--tests frames --wires shm", "--tests fetch --sizes 5000", "--reliability mostly", "--wires string", "--wires unix --vis 2",
		"--placements elsewhere", "--wires vfio-user --placements inline", "--sizes much", "--sizes 2G", "--sizes -1", "--vis x", "--vis 0", "--vis 8193",
		"--window 4097", "--sizes 1M --vis 4096 --window 4096", "--duration 0s", "--duration 2h", "--repeat 0", "--cores 4000,1", "--cores 0", "--garbage -1",
		"scaling --curves speed", "scaling --max-vis 0", "scaling --max-vis 8193", "scaling --max-regions 0", "scaling --max-regions 1000001",
		"scaling --duration 0s", "scaling --duration 1h",
		"compare --tests speed", "compare --rounds 0", "compare --peers nobody", "compare --sizes x", "compare --wire string", "compare --cores none",
		"compare --tests fetch --wire veth", "compare --tests fetch --sizes 5000", "compare --tests fetch --sizes 1M", "compare --tests frames --sizes 1M",
		"compare --duration 0s", "compare --placement elsewhere",
		"breakdown --bytes 65K", "breakdown --bytes -1", "breakdown --duration 0s", "driver --duration 11m",
		"idle --places here", "idle --duration 1ms", "idle --duration 1h", "idle --pause 0s", "idle --pause 1m", "idle --cores one",
	} {
		if err := run(t.Context(), io.Discard, false, append([]string{"bench"}, strings.Fields(args)...)...); !errors.Is(err, option.ErrBad) {
			t.Errorf("%s: %v", args, err)
		}
	}
}

// TestInterrupted: what is measured in this process ends with the context, too.
func TestInterrupted(t *testing.T) {
	for _, args := range []string{"scaling --curves vis", "breakdown", "driver"} {
		why := errors.New("stopped by the test")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(50*time.Millisecond, func() { cancel(why) })
		should.Fail(t, run(ctx, io.Discard, false, append([]string{"bench"}, strings.Fields(args+" --duration 1m")...)...), why, "%s", args)
	}
}

// TestFiles: results are drawn with a curve for all that they differ in, and their latencies are told apart.
func TestFiles(t *testing.T) {
	folder := t.TempDir()
	svg, hdr := filepath.Join(folder, "rdma.svg"), filepath.Join(folder, "rdma.hdr")
	table := printed(t, false, "bench", "--tests", "put,bandwidth", "--wires", "memory", "--sizes", "64,4K", "--repeat", "2", "--duration", "2ms",
		"--svg", svg, "--hdr", hdr)
	mention(t, table, "put", "bandwidth", "64 B", "4 KiB")
	mention(t, picture(t, svg), ">memory, put<", ">memory, bandwidth<", ">Latency<", ">Bandwidth of a stream<")
	log := must.Get(os.ReadFile(hdr))(t)
	mention(t, string(log), "Tag=put-memory-")
	if len(bench.Cores()) < 2 {
		t.Skip("a comparison takes two cores")
	}
	file := filepath.Join(folder, "latency.svg")
	args := []string{"bench", "compare", "--tests", "latency", "--sizes", "64,4K", "--peers", "unix", "--rounds", "1", "--duration", "2ms", "--svg", file}
	mention(t, printed(t, false, args...), "crossing_ns", "rounds", "trapeze", "unix", "ratio", "64 B")
	mention(t, picture(t, file), ">trapeze<", ">unix<", ">Latency<")
}

// TestNothingToDraw: what was measured is printed also if there is no picture of it, and the error says why.
func TestNothingToDraw(t *testing.T) {
	file := filepath.Join(t.TempDir(), "one.svg")
	for want, args := range map[string][]string{
		"messages_per_s": {"bench", "--tests", "bandwidth", "--wires", "memory", "--sizes", "64", "--repeat", "1", "--duration", "1ms"},
		"one CQ for all": {"bench", "scaling", "--curves", "shared-cq", "--max-vis", "1", "--duration", "1ms"},
	} {
		var text bytes.Buffer
		err := run(t.Context(), &text, false, append(args, "--svg", file)...)
		if !errors.Is(err, plot.ErrEmpty) || !strings.Contains(err.Error(), "two sizes") || !strings.Contains(text.String(), want) {
			t.Errorf("%v: %v, and it printed %q", args, err, &text)
		}
	}
}

// stopper stops what writes to it.
type stopper struct{ stop func() }

func (s stopper) Write(b []byte) (int, error) { s.stop(); return len(b), nil }

// TestStopped: a measurement that is stopped prints what it has measured, says that
// this is not all, and fails with what stopped it.
func TestStopped(t *testing.T) {
	why := errors.New("stopped by the test")
	for _, asJSON := range []bool{false, true} {
		t.Run(fmt.Sprint(asJSON), func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			var out bytes.Buffer
			// It shows its progress for the first time when something was measured.
			should.Fail(t, runShowing(ctx, &out, stopper{func() { cancel(why) }}, "plain", asJSON,
				strings.Fields("bench --tests latency --wires memory --sizes 64 --repeat 1000 --duration 2ms")...), why)
			if !asJSON {
				mention(t, out.String(), "latency", "64 B", "Incomplete", why.Error())
				return
			}
			var object struct {
				Incomplete string
				Results    []struct{ Repetitions int }
			}
			must.OK(t, json.Unmarshal(out.Bytes(), &object))
			if len(object.Results) != 1 || object.Results[0].Repetitions < 1 || !strings.Contains(object.Incomplete, why.Error()) {
				t.Errorf("%+v", object)
			}
		})
	}
	// Stopped before there was anything.
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	var out bytes.Buffer
	if err := run(ctx, &out, true, "bench", "--wires", "memory", "--repeat", "1"); !errors.Is(err, why) || out.Len() > 0 {
		t.Errorf("%v, and it printed %q", err, out.String())
	}
}
