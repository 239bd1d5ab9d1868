package trapezelab

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/outputtest"
	"github.com/trapeze-nic/trapeze/ci/kit/shelltest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/tools/internal/shell"
)

// TestMain makes this program also the processes that bench starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "bench-") {
		os.Exit(Main())
	}
	os.Exit(m.Run())
}

func run(t *testing.T, args ...string) shelltest.Outcome {
	t.Helper()
	var out, errs outputtest.Buffer
	code := program.Run(t.Context(), args, strings.NewReader(""), &out, &errs)
	return shelltest.Outcome{Code: code, Stdout: out.String(), Stderr: errs.String()}
}

var tested = shelltest.Program{Name: name, Run: run}

func TestEveryCommand(t *testing.T) { tested.TestEveryCommand(t, 25) }

func TestWrongCalls(t *testing.T) { tested.TestWrongCalls(t) }

func TestExamples(t *testing.T) { tested.TestExamples(t) }

func TestJSONKeysAreDocumented(t *testing.T) {
	dir := t.TempDir()
	tested.TestJSON(t, [][]string{
		{"version"},
		{"model", "--count", "2"}, {"model", "sweep", "--counts", "2"},
		{"model", "profiles"}, {"model", "profiles", "alcor"}, {"model", "goals", "--profiles", "alcor", "--payloads", "512"},
		{"model", "compare", "--published", "../../lab/internal/published/published.csv"},
		{"plot", "flow", "--output", filepath.Join(dir, "flow.svg")},
	})
}

// TestUsage: what is wrong with a command line is said in one line, with exit code 2.
func TestUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"model", "swep"}, "sweep"},
		{[]string{"plot", "flw"}, "flow"},
		{[]string{"bench", "compar"}, "compare"},
		{[]string{"model", "sweep", "--progress", "loud"}, "it is auto, bar, plain or none"},
		{[]string{"model", "--json", "--profile", "nowhere"}, "nowhere"},
		{[]string{"plot", "flow"}, " is required: "},
		{[]string{"plot", "flow", "--output", ""}, "must not be empty"},
		{[]string{"model", "fit"}, " is required: "},
		{[]string{"model", "compare", "--published", ""}, "must not be empty"},
		{[]string{"bench", "--svg", ""}, "must not be empty"},
		{[]string{"model", "--profile", ""}, "must not be empty"},
		{[]string{`bench`, `--duration`, `1`}, `"--duration" flag: it is a time in 1ms..1h such as`},
		{[]string{`model`, `--count`, `x`}, `"--count" flag: it is a whole number`},
		{[]string{`model`, `sweep`, `--gaps-us`, `1,x`}, `"--gaps-us" flag: it is a number`},
		{[]string{`model`, `sweep`, `--counts`, `1,x`}, `"--counts" flag: it is a whole number`},
		{[]string{`model`, `sweep`, `--policies`, `"`}, `--policies "\"": bad option (allowed: store-and-forward`},
		{[]string{"ping"}, `unknown command "ping"`},
	} {
		o := run(t, c.args...)
		if o.Code != shell.ExitUsage || !strings.HasPrefix(o.Stderr, "trapeze-lab: ") || !strings.Contains(o.Stderr, c.says) || strings.Count(o.Stderr, "\n") != 1 {
			t.Errorf("%q: %+v", c.args, o)
		}
	}
}

func TestCompletion(t *testing.T) {
	for _, c := range []struct {
		args  []string
		want  string
		files bool
	}{
		{[]string{"model", "--policy", ""}, "optimal", false},
		{[]string{"model", "--profile", ""}, "p6-natoma", true},
		{[]string{"model", "sweep", "--policies", "amp,st"}, "amp,static", false},
		{[]string{"model", "profiles", ""}, "alcor", false},
		{[]string{"bench", "--wires", ""}, "shm", false},
		{[]string{"bench", "--placements", "inline,t"}, "inline,thread", false},
		{[]string{"bench", "compare", "--wire", ""}, "shm-share", false},
		{[]string{"bench", "scaling", "--curves", ""}, "idle-vis", false},
		{[]string{"bench", "--progress", ""}, "plain", false},
	} {
		o := run(t, append([]string{"__complete"}, c.args...)...)
		should.Hold(t, slices.Contains(strings.Split(o.Stdout, "\n"), c.want) && strings.Contains(o.Stderr, "NoFileComp") != c.files, "%q: %+v", c.args, o)
	}
}

// writers are all commands and flags that write files.
var writers = []shelltest.Writer{
	{Command: "bench", Flag: "svg"},
	{Command: "bench", Flag: "hdr"},
	{Command: "bench compare", Flag: "svg", Args: []string{"--cores", "0,1"}},
	{Command: "bench scaling", Flag: "svg"},
	{Command: "plot project", Flag: "output", Args: []string{"--bus", "1", "--link", "1,2"}, Quick: true},
	{Command: "plot bandwidth", Flag: "output", Args: []string{"--policies", "amp"}, Quick: true},
	{Command: "plot cells", Flag: "output", Quick: true},
	{Command: "plot fetch", Flag: "output", Quick: true},
	{Command: "plot flow", Flag: "output", Args: []string{"--count", "2"}, Quick: true},
	{Command: "plot latency", Flag: "output", Args: []string{"--policies", "amp"}, Quick: true},
	{Command: "plot rate", Flag: "output", Args: []string{"--count", "2"}, Quick: true},
	{Command: "plot report", Flag: "output"},
	{Command: "plot schedules", Flag: "output", Args: []string{"--payload", "1024"}, Quick: true},
	{Command: "plot threshold", Flag: "output", Quick: true},
	{Command: "plot trunk", Flag: "output", Quick: true},
}

func TestFilesAreNotReplaced(t *testing.T) { tested.TestNotReplaced(t, writers) }

func TestWritersAreListed(t *testing.T) { tested.TestWriters(t, writers) }

// TestProfile: both programs are compiled with the same profile of the data path.
func TestProfile(t *testing.T) {
	ours, err := os.ReadFile("../../cmd/trapeze-lab/default.pgo")
	theirs, err2 := os.ReadFile("../../cmd/trapeze/default.pgo")
	if err := errors.Join(err, err2); err != nil || string(ours) != string(theirs) {
		t.Errorf("cmd/trapeze-lab/default.pgo is no copy of cmd/trapeze/default.pgo: %v", err)
	}
}

// TestCells: the picture of docs/channels.md is what the command draws.
func TestCells(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cells.svg")
	o := run(t, "plot", "cells", "--scenario", "priority", "--until-us", "8", "--output", file)
	must.Hold(t, o.Code == 0, "%+v", o)
	drawn, err := os.ReadFile(file)
	shown, otherErr := os.ReadFile("../../docs/cells.svg")
	if err := errors.Join(err, otherErr); err != nil || string(drawn) != string(shown) {
		t.Errorf("docs/cells.svg is another picture: %v; see 'trapeze-lab plot cells --help'", err)
	}
}
