package modelcmd_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/lab/internal/modelcmd"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/published"
	"github.com/trapeze-nic/trapeze/pipeline"
)

const table = "../published/testdata/published.csv"

// run executes "trapeze-lab ARGS" and returns what it printed.
func run(args ...string) (string, error) {
	root := &cobra.Command{Use: "trapeze-lab", SilenceUsage: true, SilenceErrors: true}
	var out bytes.Buffer
	e := command.Env{Stdout: &out, Stderr: io.Discard}
	root.PersistentFlags().BoolVar(&e.JSON, "json", false, "")
	root.AddCommand(modelcmd.Commands(&e)...)
	root.SetOut(&out)
	root.SetErr(io.Discard)
	root.SetArgs(args)
	err := root.Execute()
	return out.String(), err
}

func ok(t *testing.T, args ...string) string {
	t.Helper()
	out, err := run(args...)
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return out
}

func TestModelJSON(t *testing.T) {
	args := []string{"model", "--profile", "p6-natoma", "--policy", "amp", "--payload", "8192", "--count", "3", "--json"}
	out := ok(t, args...)
	if again := ok(t, args...); again != out {
		t.Error("two runs print different bytes")
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal([]byte(out), &keys); err != nil {
		t.Fatal(err)
	}
	var names []string
	for k := range keys {
		names = append(names, k)
	}
	slices.Sort(names)
	if want := []string{"bandwidth_mb_s", "bus_busy_us", "latency_us", "transfers"}; !slices.Equal(names, want) {
		t.Errorf("keys %v, want %v", names, want)
	}
	type transfer struct {
		Packet *int     `json:"packet"`
		Start  *float64 `json:"start_us"`
		End    *float64 `json:"end_us"`
		Bytes  *int     `json:"bytes"`
	}
	var lists map[string][]transfer
	if err := json.Unmarshal(keys["transfers"], &lists); err != nil {
		t.Fatal(err)
	}
	if len(lists) != 4 {
		t.Errorf("%d engines", len(lists))
	}
	for engine, list := range lists {
		sum := 0
		for _, l := range list {
			if l.Packet == nil || l.Start == nil || l.End == nil || l.Bytes == nil || *l.End < *l.Start {
				t.Fatalf("%s: %+v", engine, l)
			}
			sum += *l.Bytes
		}
		if sum != 3*8192 {
			t.Errorf("%s moved %d bytes", engine, sum)
		}
	}
}

// TestLogCosts: the papers' log makes pulses longer; flow graphs show each control message twice.
func TestLogCosts(t *testing.T) {
	first := func(args ...string) int {
		var r struct {
			Transfers struct{ NetTx []struct{ Bytes int } }
		}
		if err := json.Unmarshal([]byte(ok(t, append([]string{"model", "--count", "1", "--json"}, args...)...)), &r); err != nil {
			t.Fatal(err)
		}
		return r.Transfers.NetTx[0].Bytes
	}
	if with, without := first("--log-costs"), first(); with < 4*without {
		t.Errorf("first pulses of %d and %d bytes", with, without)
	}
	refused(t, []badCase{{"model --profile pcie4-x16-100g --log-costs", option.ErrBad, "nic.log_send"}})
	file := filepath.Join(t.TempDir(), "flow.svg")
	ok(t, "plot", "flow", "--count", "5", "--output", file)
	svg, err := os.ReadFile(file)
	if n := bytes.Count(svg, []byte(`height="13"`)); err != nil || n != 10 {
		t.Errorf("%d control messages in the picture, %v", n, err)
	}
}

func TestFetchJSON(t *testing.T) {
	args := []string{"model", "fetch", "--profile", "alcor", "--policy", "eager", "--payload", "8192", "--server-us", "12.5", "--json"}
	var r struct {
		Fetch     *float64 `json:"fetch_us"`
		Request   *float64 `json:"request_us"`
		Page      *float64 `json:"page_us"`
		Transfers map[string][]struct {
			Packet, Flow, Bytes int
		} `json:"transfers"`
	}
	out := ok(t, args...)
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	if r.Fetch == nil || math.Abs(*r.Fetch-*r.Request-*r.Page-12.5) > 1e-6 || *r.Request <= 0 || *r.Page <= *r.Request {
		t.Errorf("%s", out)
	}
	sums := map[string][2]int{}
	for engine, list := range r.Transfers {
		sum := sums[engine]
		for _, l := range list {
			sum[l.Flow] += l.Bytes
		}
		sums[engine] = sum
	}
	if want := map[string][2]int{"hostTx": {8192}, "netTx": {8192, 128}, "netRcv": {8192, 128}, "hostRcv": {8192}}; !maps.Equal(sums, want) {
		t.Errorf("bytes of page and request %v, want %v", sums, want)
	}
}

// TestEveryPolicyOnEveryProfile runs them all through the command.
func TestEveryPolicyOnEveryProfile(t *testing.T) {
	for _, p := range profile.Hosts.Names() {
		for _, policy := range pipeline.PolicyNames() {
			var r struct {
				Latency   float64 `json:"latency_us"`
				Bandwidth float64 `json:"bandwidth_mb_s"`
				Busy      float64 `json:"bus_busy_us"`
			}
			out := ok(t, "model", "--profile", p, "--policy", policy, "--payload", "2048", "--count", "20", "--json")
			if err := json.Unmarshal([]byte(out), &r); err != nil {
				t.Fatal(err)
			}
			if r.Latency <= 0 || r.Bandwidth <= 0 || r.Busy <= 0 {
				t.Errorf("%s, %s: %+v", p, policy, r)
			}
		}
	}
}

func TestCompare(t *testing.T) {
	out := ok(t, "model", "compare", "--published", table, "--max-error", "4.5", "--mean-error", "2")
	for _, want := range []string{"CS-1997-20, Table 1: 16 rows", "not modelled:", "002-005"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in the output", want)
		}
	}
	if !strings.Contains(out, " 0.0 %") || strings.Contains(out, "-0.0 %") {
		t.Error("an error of nothing has a sign")
	}
	// A bound that only the paper's words state is shown as one: its error is 0 where it is met.
	for id, want := range map[string]string{"002-067": ">115", "002-069": ">100", "000-006": "<400"} {
		if line := regexp.MustCompile(`(?m)^` + id + ` +(\S+)`).FindStringSubmatch(out); line == nil || line[1] != want {
			t.Errorf("%q, not %s", line, want)
		}
	}
	only := filepath.Join(t.TempDir(), "ids")
	if err := os.WriteFile(only, []byte("002-005\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := ok(t, "model", "compare", "--published", table, "--only", only); strings.Contains(out, "not modelled") {
		t.Errorf("nothing is not modelled: %q", out)
	}
	var c struct {
		Rows []struct {
			ID, Kind string
			Computed *float64
			Error    *float64 `json:"error_percent"`
		}
		Table1 struct{ Rows int }
	}
	if err := json.Unmarshal([]byte(ok(t, "model", "compare", "--published", table, "--json")), &c); err != nil {
		t.Fatal(err)
	}
	if c.Table1.Rows != 16 || len(c.Rows) < 100 {
		t.Errorf("%d rows, %d of Table 1", len(c.Rows), c.Table1.Rows)
	}
	for _, r := range c.Rows {
		if computed := r.Kind != "not modelled"; (r.Computed != nil) != computed || (r.Error != nil) != computed {
			t.Errorf("%s, %s: computed %v, error %v", r.ID, r.Kind, r.Computed, r.Error)
		}
	}
}

// TestCompareNothing: a table without a row of Table 1 meets no limit.
func TestCompareNothing(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.csv")
	if err := os.WriteFile(empty, []byte(published.Columns+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := ok(t, "model", "compare", "--published", empty, "--json"); !strings.Contains(out, `"rows": []`) {
		t.Errorf("%q", out)
	}
	for _, limit := range []string{"--max-error", "--mean-error"} {
		if _, err := run("model", "compare", "--published", empty, limit, "100"); err == nil || !strings.Contains(err.Error(), "nothing to hold against the limit") {
			t.Errorf("%s: %v", limit, err)
		}
	}
}

func TestSweep(t *testing.T) {
	var rows []struct {
		Policy  string  `json:"policy"`
		Payload int     `json:"payload"`
		Latency float64 `json:"latency_us"`
		Mean    float64 `json:"mean_latency_us"`
	}
	args := []string{"model", "sweep", "--policies", "amp,static", "--payloads", "1024,8192", "--thresholds", "0,256", "--gaps-us", "0,500", "--counts", "10", "--json"}
	if err := json.Unmarshal([]byte(ok(t, args...)), &rows); err != nil {
		t.Fatal(err)
	}
	if len(rows) != 16 {
		t.Fatalf("%d rows, want 16", len(rows))
	}
	for _, r := range rows {
		if r.Latency <= 0 || r.Mean < r.Latency-0.001 {
			t.Errorf("%+v", r)
		}
	}
	file := filepath.Join(t.TempDir(), "sweep.txt")
	if out := ok(t, "model", "sweep", "--output", file); out != "" {
		t.Errorf("prints %q beside the file", out)
	}
	if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), "p6-natoma") {
		t.Errorf("%s %v", text, err)
	}
}

// TestModelAndLogDrawTheSame: a log of a model run, written as a live device's log,
// gives the same stripes as the run itself.
func TestModelAndLogDrawTheSame(t *testing.T) {
	dir := t.TempDir()
	fromModel, fromLog, log := filepath.Join(dir, "model.svg"), filepath.Join(dir, "log.svg"), filepath.Join(dir, "dma.log")
	ok(t, "plot", "flow", "--policy", "amp", "--count", "4", "--output", fromModel)
	var r struct {
		Transfers map[string][]struct {
			Packet int
			Start  float64 `json:"start_us"`
			End    float64 `json:"end_us"`
			Bytes  int
		}
	}
	if err := json.Unmarshal([]byte(ok(t, "model", "--policy", "amp", "--count", "4", "--json")), &r); err != nil {
		t.Fatal(err)
	}
	var text []byte
	for name, list := range r.Transfers {
		engine, known := dmalog.ParseEngine(name)
		if !known {
			t.Fatalf("engine %q", name)
		}
		for _, l := range list {
			text = dmalog.Append(text, dmalog.Record{Packet: l.Packet, Engine: engine, Start: int64(l.Start*1e6 + 0.5), End: int64(l.End*1e6 + 0.5), Bytes: l.Bytes})
		}
	}
	if err := os.WriteFile(log, text, 0o600); err != nil {
		t.Fatal(err)
	}
	ok(t, "plot", "flow", "--log", log, "--output", fromLog)
	stripes := func(file string) []string {
		svg, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for line := range strings.Lines(string(svg)) {
			if strings.Contains(line, `height="38"`) {
				out = append(out, line)
			}
		}
		slices.Sort(out)
		return out
	}
	if a, b := stripes(fromModel), stripes(fromLog); len(a) < 20 || !slices.Equal(a, b) {
		t.Errorf("%d stripes from the model, %d from the log, or others", len(a), len(b))
	}
}

func TestPictures(t *testing.T) {
	dir := t.TempDir()
	for _, args := range []string{"flow", "fetch", "rate", "threshold", "latency", "bandwidth"} {
		file := filepath.Join(dir, args+".svg")
		out := ok(t, "plot", args, "--profile", "pii-440lx", "--output", file, "--json")
		svg, err := os.ReadFile(file)
		if want := fmt.Sprintf("{\n  \"file\": %q,\n  \"bytes\": %d\n}\n", file, len(svg)); out != want {
			t.Errorf("%s prints %q, want %q", args, out, want)
		}
		if err != nil || !bytes.HasPrefix(svg, []byte("<svg ")) || !bytes.HasSuffix(svg, []byte("</svg>\n")) {
			t.Errorf("%s: %v", args, err)
		}
		// The request is a packet of its own, beside the page.
		if args == "fetch" && (!bytes.Contains(svg, []byte(`height="38" fill="#1b4f8a"`)) || !bytes.Contains(svg, []byte(`height="38" fill="#e69f00"`))) {
			t.Errorf("request and page have one colour")
		}
	}
	file := filepath.Join(dir, "report.html")
	if out := ok(t, "plot", "report", "--profiles", "alcor", "--published", table, "--output", file); out != "" {
		t.Errorf("report prints %q", out)
	}
	if page, err := os.ReadFile(file); err != nil || !bytes.Contains(page, []byte("Published and computed")) {
		t.Errorf("report: %v", err)
	}
}

func TestProfiles(t *testing.T) {
	if out := ok(t, "model", "profiles"); !strings.Contains(out, "pcie6-x16-800g") {
		t.Errorf("%s", out)
	}
	// What is printed can be used.
	file := filepath.Join(t.TempDir(), "mine.toml")
	if err := os.WriteFile(file, []byte(ok(t, "model", "profiles", "alcor")), 0o600); err != nil {
		t.Fatal(err)
	}
	if a, b := ok(t, "model", "--profile", "alcor", "--json"), ok(t, "model", "--profile", file, "--json"); a != b {
		t.Error("a printed profile gives other figures")
	}
}
