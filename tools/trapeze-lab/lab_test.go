package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/outputtest"
	"github.com/trapeze-nic/trapeze/ci/kit/shelltest"
	"github.com/trapeze-nic/trapeze/tools/internal/shell"
)

// TestMain makes this program also the processes that bench starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "bench-") {
		os.Exit(program.Main())
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

func TestColumns(t *testing.T) { tested.TestColumns(t) }

func TestJSONKeysAreDocumented(t *testing.T) {
	dir := t.TempDir()
	tested.TestJSON(t, [][]string{
		{"version"}, {"--version"}, {"help"}, {"plot"},
		{"model", "--count", "2"}, {"model", "sweep", "--counts", "2"}, {"model", "sweep", "--counts", "2", "--output", filepath.Join(dir, "sweep")},
		{"model", "profiles"}, {"model", "profiles", "alcor"}, {"model", "goals", "--profiles", "alcor", "--payloads", "512"},
		{"model", "compare", "--published", "../../lab/internal/published/testdata/published.csv"},
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
		{[]string{"model", "sweep", "--progress", "loud"}, "auto, bar, plain or none"},
		{[]string{"model", "--json", "--profile", "nowhere"}, "nowhere"},
		{[]string{"plot", "flow"}, " is required: "},
		{[]string{"plot", "flow", "--output", ""}, " is required: "},
		{[]string{"model", "fit"}, " is required: "},
		{[]string{"model", "compare", "--published", ""}, " is required: "},
		{[]string{"bench", "--svg", ""}, " is required: "},
		{[]string{"model", "--profile", ""}, " is required: "},
		{[]string{`bench`, `--duration`, `1`}, `--duration 1: bad option (allowed: a time such as`},
		{[]string{`model`, `--count`, `x`}, `--count x: bad option (allowed: a whole number)`},
		{[]string{`model`, `sweep`, `--gaps-us`, `1,x`}, `--gaps-us 1,x: bad option (allowed: numbers, with commas between them: microseconds between postings, 0 to 1000000`},
		{[]string{`model`, `sweep`, `--counts`, `1,x`}, `--counts 1,x: bad option (allowed: whole numbers, with commas`},
		{[]string{`model`, `sweep`, `--policies`, `"`}, `--policies "\"": bad option (allowed: words, with commas`},
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
		{[]string{"bench", "compare", "--wire", ""}, "shm-share", false},
		{[]string{"bench", "scaling", "--curves", ""}, "idle-vis", false},
		{[]string{"bench", "--progress", ""}, "plain", false},
	} {
		o := run(t, append([]string{"__complete"}, c.args...)...)
		if !slices.Contains(strings.Split(o.Stdout, "\n"), c.want) || strings.Contains(o.Stderr, "NoFileComp") == c.files {
			t.Errorf("%q: %+v", c.args, o)
		}
	}
	for _, sh := range []string{"bash", "zsh", "fish"} {
		if o := run(t, "completion", sh); strings.Contains(strings.ReplaceAll(o.Stdout, name, ""), "trapeze") || !strings.Contains(o.Stdout, name) {
			t.Errorf("%s: it is for another program: %.200q", sh, o.Stdout)
		}
	}
}

// writers are all commands and flags that write files.
var writers = []shelltest.Writer{
	{Command: "bench", Flag: "svg"},
	{Command: "bench", Flag: "hdr"},
	{Command: "bench compare", Flag: "svg", Args: []string{"--cores", "0,1"}},
	{Command: "bench scaling", Flag: "svg"},
	{Command: "model project", Flag: "output", Args: []string{"--bus", "1", "--link", "1..2"}, Quick: true},
	{Command: "model sweep", Flag: "output", Args: []string{"--counts", "2"}, Quick: true},
	{Command: "plot bandwidth", Flag: "output", Args: []string{"--policies", "amp"}, Quick: true},
	{Command: "plot bridge", Flag: "output", Quick: true},
	{Command: "plot cells", Flag: "output", Quick: true},
	{Command: "plot fetch", Flag: "output", Quick: true},
	{Command: "plot flow", Flag: "output", Args: []string{"--count", "2"}, Quick: true},
	{Command: "plot latency", Flag: "output", Args: []string{"--policies", "amp"}, Quick: true},
	{Command: "plot rate", Flag: "output", Args: []string{"--count", "2"}, Quick: true},
	{Command: "plot report", Flag: "output"},
	{Command: "plot schedules", Flag: "output", Args: []string{"--payload", "1024"}, Quick: true},
	{Command: "plot threshold", Flag: "output", Quick: true},
	{Command: "plot transfer", Flag: "output", Quick: true},
	{Command: "plot trunk", Flag: "output", Quick: true},
}

func TestFilesAreNotReplaced(t *testing.T) { tested.TestNotReplaced(t, writers) }

func TestWritersAreListed(t *testing.T) { tested.TestWriters(t, writers) }

// TestProfile: both programs are compiled with the same profile of the data path.
func TestProfile(t *testing.T) {
	ours, err := os.ReadFile("default.pgo")
	theirs, err2 := os.ReadFile("../trapeze/default.pgo")
	if err := errors.Join(err, err2); err != nil || string(ours) != string(theirs) {
		t.Errorf("tools/trapeze-lab/default.pgo is no copy of tools/trapeze/default.pgo: %v", err)
	}
}
