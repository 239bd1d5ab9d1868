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
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/lab/internal/modelcmd"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/published"
	"github.com/trapeze-nic/trapeze/pipeline"
)

const table = "../published/published.csv"

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
	should.Be(t, ok(t, args...), out, "two runs print different bytes")
	var keys map[string]json.RawMessage
	must.OK(t, json.Unmarshal([]byte(out), &keys))
	should.Same(t, slices.Sorted(maps.Keys(keys)), []string{"bandwidth_mb_s", "bus_busy_us", "latency_us", "transfers"}, "keys")
	type transfer struct {
		Packet *int     `json:"packet"`
		Start  *float64 `json:"start_us"`
		End    *float64 `json:"end_us"`
		Bytes  *int     `json:"bytes"`
	}
	var lists map[string][]transfer
	must.OK(t, json.Unmarshal(keys["transfers"], &lists))
	should.Be(t, len(lists), 4, "engines")
	for engine, list := range lists {
		sum := 0
		for _, l := range list {
			if l.Packet == nil || l.Start == nil || l.End == nil || l.Bytes == nil || *l.End < *l.Start {
				t.Fatalf("%s: %+v", engine, l)
			}
			sum += *l.Bytes
		}
		should.Be(t, sum, 3*8192, "%s moved bytes", engine)
	}
}

// TestLogCosts: the papers' log makes pulses longer; a copy makes the first hostTx longer, and no other; flow graphs show
// each control message twice.
func TestLogCosts(t *testing.T) {
	type moved struct {
		Start float64 `json:"start_us"`
		End   float64 `json:"end_us"`
		Bytes int
	}
	transfers := func(args ...string) (r struct {
		Transfers struct{ HostTx, NetTx []moved }
	}) {
		must.OK(t, json.Unmarshal([]byte(ok(t, append([]string{"model", "--count", "2", "--json"}, args...)...)), &r))
		return r
	}
	if with, without := transfers("--log-costs").Transfers.NetTx[0].Bytes, transfers().Transfers.NetTx[0].Bytes; with < 4*without {
		t.Errorf("first pulses of %d and %d bytes", with, without)
	}
	beside := transfers("--block-copy", "70").Transfers.HostTx
	if first, second := beside[0].End-beside[0].Start, beside[1].End-beside[1].Start; first < 3*second || math.Abs(second-66.8) > 0.1 {
		t.Errorf("hostTx of %v and %v us", first, second)
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
	must.OK(t, json.Unmarshal([]byte(out), &r))
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
			must.OK(t, json.Unmarshal([]byte(out), &r))
			if r.Latency <= 0 || r.Bandwidth <= 0 || r.Busy <= 0 {
				t.Errorf("%s, %s: %+v", p, policy, r)
			}
		}
	}
}

func TestCompare(t *testing.T) {
	out := ok(t, "model", "compare", "--published", table, "--max-error", "4.5", "--mean-error", "2")
	should.Contain(t, out, "not modelled")
	should.Contain(t, out, "002-005")
	// A bound that only the paper's words state is shown as one: its error is 0 where it is met.
	for id, want := range map[string]string{"002-067": ">115", "002-069": ">100", "000-006": "<400"} {
		if line := regexp.MustCompile(`(?m)^ *` + id + ` +(\S+) +(\S+)`).FindStringSubmatch(out); line == nil || line[1]+line[2] != want {
			t.Errorf("%q, not %s", line, want)
		}
	}
	var c struct {
		Rows []struct {
			ID, Kind string
			Computed *float64
			Error    *float64 `json:"error_percent"`
		}
		Table1 struct{ Rows int }
	}
	must.OK(t, json.Unmarshal([]byte(ok(t, "model", "compare", "--published", table, "--json")), &c))
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
	must.OK(t, os.WriteFile(empty, []byte(published.Columns+"\n"), 0o600))
	should.Contain(t, ok(t, "model", "compare", "--published", empty, "--json"), `"rows": []`)
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
	must.OK(t, json.Unmarshal([]byte(ok(t, args...)), &rows))
	must.Be(t, len(rows), 16, "rows")
	for _, r := range rows {
		if r.Latency <= 0 || r.Mean < r.Latency-0.001 {
			t.Errorf("%+v", r)
		}
	}
	should.Contain(t, ok(t, "model", "sweep"), "p6-natoma")
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
	must.OK(t, json.Unmarshal([]byte(ok(t, "model", "--policy", "amp", "--count", "4", "--json")), &r))
	var records []dmalog.Record
	for name, list := range r.Transfers {
		engine, known := dmalog.ParseEngine(name)
		if !known {
			t.Fatalf("engine %q", name)
		}
		for _, l := range list {
			records = append(records, dmalog.Record{Packet: l.Packet, Engine: engine, Start: int64(l.Start*1e6 + 0.5), End: int64(l.End*1e6 + 0.5), Bytes: l.Bytes})
		}
	}
	var text bytes.Buffer
	must.OK(t, dmalog.Write(&text, dmalog.Log{Records: records}))
	must.OK(t, os.WriteFile(log, text.Bytes(), 0o600))
	ok(t, "plot", "flow", "--log", log, "--output", fromLog)
	stripes := func(file string) []string {
		svg := must.Get(os.ReadFile(file))(t)
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
		should.Be(t, out, fmt.Sprintf("{\n  \"file\": %q,\n  \"bytes\": %d\n}\n", file, len(svg)), "%s prints", args)
		if err != nil || !bytes.HasPrefix(svg, []byte("<svg ")) || !bytes.HasSuffix(svg, []byte("</svg>\n")) {
			t.Errorf("%s: %v", args, err)
		}
		// The request is a packet of its own, beside the page.
		if args == "fetch" && (!bytes.Contains(svg, []byte(`height="38" fill="#1b4f8a"`)) || !bytes.Contains(svg, []byte(`height="38" fill="#e69f00"`))) {
			t.Errorf("request and page have one colour")
		}
	}
	for args, names := range map[string]string{
		"threshold --other 512,2048":                    "receiver 512 bytes,receiver 2048 bytes,sender 512 bytes,sender 2048 bytes",
		"trunk --policy eager --senders 3":              "0: hostTx,2: netTx,trunk",
		"project --bus 1,2 --link 1,2,4 --payload 2048": "bus x 1,bus x 2",
	} {
		file := filepath.Join(dir, "names.svg")
		ok(t, strings.Fields("plot "+args+" --force --output "+file)...)
		svg, err := os.ReadFile(file)
		for name := range strings.SplitSeq(names, ",") {
			if err != nil || !bytes.Contains(svg, []byte(">"+name+"<")) {
				t.Errorf("%s: no %s, %v", args, name, err)
			}
		}
	}
	file := filepath.Join(dir, "report.html")
	should.Be(t, ok(t, "plot", "report", "--profiles", "alcor", "--published", table, "--output", file), "", "report prints")
	if page, err := os.ReadFile(file); err != nil || !bytes.Contains(page, []byte("Published and computed")) {
		t.Errorf("report: %v", err)
	}
}

func TestProfiles(t *testing.T) {
	should.Contain(t, ok(t, "model", "profiles"), "pcie6-x16-800g")
	// What is printed can be used.
	file := filepath.Join(t.TempDir(), "mine.toml")
	must.OK(t, os.WriteFile(file, []byte(ok(t, "model", "profiles", "alcor")), 0o600))
	should.Be(t, ok(t, "model", "--profile", file, "--json"), ok(t, "model", "--profile", "alcor", "--json"), "a printed profile gives other figures")
}

// shared is a row of "model trunk".
type shared struct {
	Policy     string
	Sender     int
	Latency    float64 `json:"latency_us"`
	Longest    float64 `json:"longest_us"`
	Bandwidth  float64 `json:"bandwidth_mb_s"`
	Held       float64 `json:"held_us"`
	Idle       float64 `json:"held_idle_us"`
	Pulses     float64 `json:"netTx_per_frame"`
	CutThrough int     `json:"cut_through"`
	Lost       int
}

func trunk(t *testing.T, args ...string) (rows []shared) {
	t.Helper()
	must.OK(t, json.Unmarshal([]byte(ok(t, append([]string{"model", "trunk", "--json"}, args...)...)), &rows))
	return rows
}

// TestTrunk: cut-through of a slow sender takes bandwidth from a fast one, which store and forward
// leaves to it, and the watchdog gives it back.
func TestTrunk(t *testing.T) {
	rows := trunk(t, "--policies", "store-and-forward,eager", "--slow", "8", "--count", "40")
	if len(rows) != 4 || rows[1].Policy != "store-and-forward" || rows[3].Policy != "eager" || rows[3].Sender != 1 {
		t.Fatalf("%+v", rows)
	}
	if whole, eager := rows[1], rows[3]; eager.Bandwidth > whole.Bandwidth/3 || rows[2].Idle < rows[2].Held/2 {
		t.Errorf("the fast sender: %+v, beside store and forward %+v", eager, whole)
	}
	rows = trunk(t, "--policies", "eager", "--slow", "1000", "--count", "40", "--watchdog-us", "50")
	if rows[0].Lost != 40 || rows[1].Lost != 0 || rows[1].Bandwidth < 100 {
		t.Errorf("%+v", rows)
	}
	should.Be(t, strings.Count(ok(t, "model", "trunk", "--senders", "3", "--count", "5"), "\n"), 10, "lines")
}

func TestTrunkRefuses(t *testing.T) {
	refused(t, []badCase{
		{"model trunk --senders 17", option.ErrBad, "1..16"},
		{"model trunk --slow 0.5", option.ErrBad, "1..1000"},
		{"model trunk --packet -1", option.ErrBad, "0..16777216"},
		{"model trunk --watchdog-us -1", option.ErrBad, "0..1000000"},
		{"model trunk --gap-us 1e9", option.ErrBad, "0..1000000"},
		{"model trunk --policies psychic", option.ErrBad, "amp"},
		{"model trunk --policies EMPTY", option.ErrBad, "--policies"},
		{"model trunk --payload 0", option.ErrBad, "1..16777216"},
		{"plot trunk", option.ErrBad, "a file to write"},
	})
}

// projected is a row of "model project".
type projected struct {
	Bus       string
	Link      float64 `json:"link_mb_s"`
	Whole     float64 `json:"store_and_forward_us"`
	Latency   float64 `json:"latency_us"`
	Reduction float64 `json:"reduction_percent"`
}

func project(t *testing.T, args ...string) (rows []projected) {
	t.Helper()
	must.OK(t, json.Unmarshal([]byte(ok(t, append([]string{"model", "project", "--json"}, args...)...)), &rows))
	return rows
}

// TestProject: factors of 1 leave a platform as it is, and neither a faster bus nor a faster link
// makes store and forward slower; the two together save what either saves.
func TestProject(t *testing.T) {
	rows := project(t, "--profile", "alcor-hpdc97", "--policy", "eager", "--bus", "1,2", "--link", "1,4")
	if len(rows) != 4 || rows[0].Bus != "bus x 1" || rows[3].Bus != "bus x 2" || math.Abs(rows[3].Link-4*rows[0].Link) > 1e-9 {
		t.Fatalf("%+v", rows)
	}
	var same struct {
		Latency float64 `json:"latency_us"`
	}
	must.OK(t, json.Unmarshal([]byte(ok(t, "model", "--profile", "alcor-hpdc97", "--policy", "eager", "--count", "1", "--json")), &same))
	if rows[0].Latency != same.Latency || math.Abs(rows[0].Reduction-100*(1-rows[0].Latency/rows[0].Whole)) > 1e-6 {
		t.Errorf("%+v, want %v us", rows[0], same.Latency)
	}
	link, bus, both := rows[0].Whole-rows[1].Whole, rows[0].Whole-rows[2].Whole, rows[0].Whole-rows[3].Whole
	if link <= 0 || bus <= 0 || math.Abs(link+bus-both) > 0.01 {
		t.Errorf("saved %v, %v and together %v us", link, bus, both)
	}
	if rows := project(t, "--pcie", "--payload", "4096"); len(rows) != 28 || rows[0].Bus != "pcie3-x8" || rows[27].Link != 100_000 {
		t.Errorf("%+v", rows)
	}
}

func TestProjectRefuses(t *testing.T) {
	for _, args := range []string{"--bus 0", "--bus 1..2", "--bus -1", "--link nan", "--bus 2000", "--policy none", "--payload 0", "--pcie --bus 1,2",
		"--pcie --profile alcor", "--profile none", "--policy optimal --payload 99999999"} {
		if out, err := run(append([]string{"model", "project"}, strings.Fields(args)...)...); err == nil || out != "" {
			t.Errorf("%s: %q, %v", args, out, err)
		}
	}
}

// TestSchedulePictures: the three schedules have a band for each engine and end one after the
// other, the variable one first.
func TestSchedulePictures(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.svg")
	ok(t, "plot", "schedules", "--profile", "p6-natoma", "--payload", "4096", "--output", file)
	svg := must.Get(os.ReadFile(file))(t)
	took := regexp.MustCompile(`store and forward ([0-9.]+) us; best fixed pulse \(\d+ bytes\) ([0-9.]+) us; best variable schedule ([0-9.]+) us`).FindStringSubmatch(string(svg))
	var us [4]float64
	for i := 1; i < len(took); i++ {
		us[i] = must.Get(strconv.ParseFloat(took[i], 64))(t)
	}
	if us[3] <= 0 || us[2] <= us[3] || us[1] <= us[2] {
		t.Errorf("%q", took)
	}
	for _, band := range []string{"whole: hostTx", "fixed: netTx", "variable: hostRcv"} {
		should.Contain(t, string(svg), ">"+band+"<", "no band %s", band)
	}
}
