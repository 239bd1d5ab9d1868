package cli_test

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/trapeze-nic/trapeze/ci/kit/hostpcitest"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/cli"
)

// described is the help of a command in JSON.
type described struct {
	Command, Usage, Summary, Description, Examples string
	Flags                                          []struct{ Name, Usage string }
	Commands                                       []struct{ Name, Summary string }
}

// tree calls visit for every command but the hidden ones.
func tree(t *testing.T, visit func(path []string, d described)) {
	var walk func(path []string)
	walk = func(path []string) {
		var d described
		decode(t, run(t, append(slices.Clone(path), "--help", "--json")...), &d)
		visit(path, d)
		for _, c := range d.Commands {
			walk(append(slices.Clone(path), c.Name))
		}
	}
	walk(nil)
	walk([]string{"completion"}) // hidden, and for users all the same
}

// topics are texts among the commands: they run nothing.
var topics = []string{"exit-codes"}

// TestEveryCommand: whatever command there is, it is documented, has help in JSON,
// and a mistake in its flags leads to its own help.
func TestEveryCommand(t *testing.T) {
	n := 0
	tree(t, func(path []string, d described) {
		n++
		name := strings.Join(append([]string{"trapeze"}, path...), " ")
		if d.Command != name || d.Summary == "" || !strings.HasPrefix(d.Usage, name) {
			t.Errorf("%s: its help is of %q, usage %q, summary %q", name, d.Command, d.Usage, d.Summary)
		}
		if again := run(t, append([]string{"help", "--json"}, path...)...); again.stdout != run(t, append(slices.Clone(path), "--json", "-h")...).stdout {
			t.Errorf("help %s: other than --help, %+v", name, again)
		}
		if len(path) == 1 && slices.Contains(topics, path[0]) {
			return
		}
		if !strings.Contains(d.Examples, name) && !strings.Contains(d.Examples, "trapeze") {
			t.Errorf("%s: no example in %q", name, d.Examples)
		}
		if !strings.Contains(d.Description, "\nJSON") {
			t.Errorf("%s: the description does not say what it prints with --json", name)
		}
		for _, flag := range []string{"json", "progress"} {
			if !slices.ContainsFunc(d.Flags, func(f struct{ Name, Usage string }) bool { return f.Name == flag && f.Usage != "" }) {
				t.Errorf("%s: no flag --%s", name, flag)
			}
		}
		o := run(t, append(slices.Clone(path), "--no-such-flag", "--json")...)
		var r struct {
			Error    string
			ExitCode int `json:"exit_code"`
		}
		if err := json.Unmarshal([]byte(o.stdout), &r); err != nil || o.code != cli.ExitUsage || r.ExitCode != cli.ExitUsage ||
			!strings.HasSuffix(r.Error, "unknown flag: --no-such-flag (see '"+name+" --help')") {
			t.Errorf("%s: a bad flag: %v, %+v", name, err, o)
		}
		if len(d.Commands) > 0 {
			if o := run(t, append(slices.Clone(path), "no-such-command")...); o.code != cli.ExitUsage || !strings.Contains(o.stderr, "(see '"+name+" --help')") {
				t.Errorf("%s: a bad command: %+v", name, o)
			}
		}
	})
	if n < 40 {
		t.Errorf("there are %d commands only", n)
	}
}

// TestColumns: help, and what demo --channels explains, fits 80 columns.
func TestColumns(t *testing.T) {
	fits := func(of, text string) {
		for line := range strings.SplitSeq(text, "\n") {
			if n := utf8.RuneCountInString(line); n > 80 {
				t.Errorf("%s: a line of %d columns: %s", of, n, line)
			}
		}
	}
	tree(t, func(path []string, d described) {
		o := run(t, append(slices.Clone(path), "--help")...)
		if !strings.Contains(o.stdout, "\n") || o.code != cli.ExitOK {
			t.Errorf("%s: %+v", d.Command, o)
		}
		fits(d.Command+" --help", o.stdout)
	})
	o := run(t, "demo", "--channels", "--duration", "5ms")
	if o.code != cli.ExitOK || !strings.Contains(o.stdout, "beside bulk") {
		t.Errorf("%+v", o)
	}
	fits("demo --channels", o.stdout)
}

// TestExamples: every example of a help text names a command, and flags that it has.
func TestExamples(t *testing.T) {
	flags, examples := map[string][]string{}, map[string]string{}
	tree(t, func(path []string, d described) {
		var names []string
		for _, f := range d.Flags {
			names = append(names, f.Name)
		}
		flags[d.Command], examples[d.Command] = names, strings.ReplaceAll(d.Examples, "\\\n", " ")
	})
	call, flag := regexp.MustCompile(`\btrapeze( [^\n|&;>']+|'[^'\n]*')+`), regexp.MustCompile(` --([a-z-]+)`)
	for of, text := range examples {
		for _, c := range call.FindAllString(text, -1) {
			command := "trapeze"
			for _, word := range strings.Fields(c)[1:] {
				if flags[command+" "+word] == nil {
					break
				}
				command += " " + word
			}
			for _, f := range flag.FindAllStringSubmatch(c, -1) {
				if !slices.Contains(flags[command], f[1]) {
					t.Errorf("%s: in the example %q there is --%s, which %s does not have", of, c, f[1], command)
				}
			}
		}
	}
}

func TestSuggestions(t *testing.T) {
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"snd"}, "send"},
		{[]string{"snd", "--device", "emu:", "file"}, "send"},
		{[]string{"pin"}, "ping"},
		{[]string{"fw", "sgn", "--key", "k"}, "sign"},
		{[]string{"model", "swep"}, "sweep"},
		{[]string{"plot", "flw"}, "flow"},
		{[]string{"bench", "compar"}, "compare"},
		{[]string{"help", "doktor"}, "doctor"},
	} {
		o := run(t, c.args...)
		_, like, _ := strings.Cut(o.stderr, "; did you mean ")
		if like, _, _ = strings.Cut(like, "?"); o.code != cli.ExitUsage || !slices.Contains(strings.Split(like, " or "), c.says) {
			t.Errorf("%v: %+v", c.args, o)
		}
	}
}

// TestNothingGiven: what is required is called so, whether it is missing or empty.
func TestNothingGiven(t *testing.T) {
	for _, args := range [][]string{
		{"plot", "flow"}, {"plot", "flow", "--output", ""}, {"fw", "build"}, {"fw", "build", "--output", ""}, {"fw", "sign", "x"},
		{"model", "fit"}, {"model", "compare", "--published", ""}, {"fw", "status"}, {"fw", "status", "--device", ""}, {"load", "image:amp"},
		{"send", "x"}, {"send", "--device", "", "x"}, {"recv"}, {"recv", "--device", "emu:?wire=mem:x", "--output", ""}, {"emulate"},
		{"frames", "dump"}, {"frames", "echo", "--device", "emu:"}, {"frames", "dump", "--device", "emu:", "--filter", ""}, {"frames", "bridge"},
		{"emulate", "--socket", ""}, {"demo", "--input", ""}, {"ping", "--device", ""}, {"bench", "--svg", ""}, {"bind", ""}, {"doctor", ""},
		{"model", "--profile", ""}, {"memory", "serve", "--size", "1G"}, {"memory", "serve", "--device", "emu:?wire=mem:x"}, {"memory", "stat"},
		{"memory", "stat", "--device", "emu:?wire=mem:x", "--server", ""},
	} {
		if o := run(t, args...); o.code != cli.ExitUsage || !strings.Contains(o.stderr, " is required: ") || o.stdout != "" {
			t.Errorf("%q: %+v", args, o)
		}
	}
}

// TestWrongWire: an option of a device that is not known is named, whatever else is
// wrong with the address.
func TestWrongWire(t *testing.T) {
	const address = "emu:?wiree=udp://127.0.0.1:0"
	for _, args := range [][]string{{"recv"}, {"send", "x"}, {"ping"}, {"info"}, {"emulate", "--socket", filepath.Join(t.TempDir(), "s")}} {
		o := run(t, append(args, "--device", address)...)
		if o.code != cli.ExitDevice || !strings.Contains(o.stderr, `unknown option "wiree"`) || strings.Count(o.stderr, address) != 1 {
			t.Errorf("%v: %+v", args, o)
		}
	}
	if o := run(t, "recv", "--device", "emu:?wire=udp://256.0.0.1:1"); strings.Count(o.stderr, "open") != 1 {
		t.Errorf("%+v", o)
	}
}

// TestJSONKeysAreDocumented: each key that a command prints is in its help, and the
// output is one value in lines.
func TestJSONKeysAreDocumented(t *testing.T) {
	dir := t.TempDir()
	img, key := filepath.Join(dir, "x.img"), filepath.Join(dir, "key")
	for _, args := range [][]string{
		{"version"}, {"--version"}, {"info"}, {"list", "--root", bindableHost(t)}, {"bind", "--dry-run", "--root", bindableHost(t), hostpcitest.NIC().Address},
		{"unbind", "--dry-run", "--root", boundHost(t), hostpcitest.NIC().Address}, {"doctor", "--root", bindableHost(t)},
		{"ping", "-c", "1"}, {"conform", "--section", "layout"}, {"model", "--count", "2"}, {"model", "sweep", "--counts", "2"}, {"model", "sweep", "--counts", "2", "--output", filepath.Join(dir, "sweep")},
		{"model", "profiles"}, {"model", "profiles", "alcor"}, {"model", "goals", "--profiles", "alcor", "--payloads", "512"},
		{"model", "compare", "--published", "../../../../lab/internal/published/testdata/published.csv"},
		{"plot", "flow", "--output", filepath.Join(dir, "flow.svg")}, {"fw", "build", "--image", "acl", "--output", img}, {"fw", "check", img}, {"fw", "keygen", key},
		{"fw", "sign", img, "--key", key + ".pem"}, {"fw", "verify", img, "--keys", dir}, {"fw", "show", img, "--keys", dir}, {"fw", "disasm", img},
		{"fw", "status", "--device", "emu:"}, {"load", "image:acl", "--device", "emu:"},
		{"frames", "echo", "--device", "emu:", "--ip", "10.0.0.1", "--duration", "1ms", "--image", "acl"},
		{"frames", "dump", "--device", "emu:", "--duration", "1ms", "--check"},
		{"frames", "dump", "--device", "emu:", "--duration", "1ms", "--output", filepath.Join(dir, "frames.pcap")},
		{"frames", "gen", "--device", "emu:", "--count", "1"}, {"frames", "forward", "--device", "emu:", "--device", "emu:", "--duration", "1ms"},
		{"frames", "bridge", "--device", "emu:", "--device", "emu:", "--duration", "1ms"}, {"help"}, {"fw"}, {"plot"},
		{"memory", "demo", "--size", "2M", "--memory", "8M"}, {"memory", "bench", "--duration", "5ms"},
	} {
		o := run(t, append([]string{"--json"}, args...)...)
		if args[0] != "doctor" && (o.code != cli.ExitOK || o.stderr != "") { // which finds that much is missing
			t.Errorf("%v: %+v", args, o)
		}
		var v any
		if err := json.Unmarshal([]byte(o.stdout), &v); err != nil {
			t.Errorf("%v: %v in %q", args, err, o.stdout)
			continue
		}
		var lines bytes.Buffer
		if json.Indent(&lines, []byte(o.stdout), "", "  ") != nil || lines.String() != o.stdout {
			t.Errorf("%v: not indented as others: %.100q", args, o.stdout)
		}
		var help described
		path := args[:1]
		if c := commandsWithin[args[0]]; c != nil && len(args) > 1 && slices.Contains(c, args[1]) {
			path = args[:2]
		}
		if strings.HasPrefix(path[0], "--") || path[0] == "fw" && len(path) == 1 || path[0] == "plot" && len(path) == 1 {
			continue // those of version, and of help
		}
		decode(t, run(t, append(slices.Clone(path), "--help", "--json")...), &help)
		for _, k := range undocumented(v, help.Description) {
			t.Errorf("%v: key %s is not in the help", args, k)
		}
	}
}

// commandsWithin are the subcommands of those that the test above runs.
var commandsWithin = map[string][]string{
	"memory": {"demo", "bench"},
	"frames": {"dump", "gen", "echo", "forward", "bridge"}, "fw": {"build", "check", "keygen", "sign", "verify", "show", "disasm", "status"}, "model": {"sweep", "profiles", "goals", "compare"}, "plot": {"flow"},
}

// undocumented lists the keys of a value that a text does not name. What stands below
// counters are names of counters.
func undocumented(v any, text string) (list []string) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			list = append(list, undocumented(e, text)...)
		}
	case map[string]any:
		for k, e := range v {
			if !regexp.MustCompile(`\b` + regexp.QuoteMeta(k) + `\b`).MatchString(text) {
				list = append(list, k)
			}
			if k != "counters" {
				list = append(list, undocumented(e, text)...)
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// boundHost is bindableHost with its NIC given to VFIO.
func boundHost(t *testing.T) string {
	t.Helper()
	tree := hostpcitest.New(t)
	f := hostpcitest.NIC()
	f.Driver = "vfio-pci"
	tree.Function(f)
	return string(tree.Root())
}
