package cli_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/hostpcitest"
	"github.com/trapeze-nic/trapeze/ci/kit/shelltest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/tools/internal/shell"
)

// program is trapeze, to the tests of all programs.
var program = shelltest.Program{Name: "trapeze", Run: func(t *testing.T, args ...string) shelltest.Outcome {
	o := run(t, args...)
	return shelltest.Outcome{Code: o.code, Stdout: o.stdout, Stderr: o.stderr}
}}

func TestEveryCommand(t *testing.T) { program.TestEveryCommand(t, 40) }

func TestWrongCalls(t *testing.T) { program.TestWrongCalls(t) }

func TestExamples(t *testing.T) { program.TestExamples(t) }

func TestSuggestions(t *testing.T) {
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"snd"}, "send"},
		{[]string{"pin"}, "ping"},
		{[]string{"fw", "sgn"}, "sign"},
		{[]string{"help", "pin"}, "ping"},
		{[]string{"help", "fw", "sgn"}, "sgn"},
	} {
		o := run(t, c.args...)
		should.Hold(t, o.code == shell.ExitUsage && strings.Contains(o.stderr, c.says) && strings.Count(o.stderr, "\n") == 1, "%v: %+v", c.args, o)
	}
}

// TestNothingGiven: what is required is called so, whether it is missing or empty.
func TestNothingGiven(t *testing.T) {
	for _, args := range [][]string{
		{"fw", "build"}, {"fw", "build", "--output", ""}, {"fw", "sign", "x"},
		{"fw", "status"}, {"fw", "status", "--device", ""}, {"load", "image:amp"},
		{"send", "x"}, {"send", "--device", "", "x"}, {"recv"}, {"recv", "--device", "emu:?wire=mem:x", "--output", ""}, {"emulate"},
		{"frames", "dump"}, {"frames", "echo", "--device", "emu:"}, {"frames", "dump", "--device", "emu:", "--match", ""}, {"frames", "forward"},
		{"emulate", "--socket", ""}, {"demo", "--input", ""}, {"ping", "--device", ""}, {"bind", ""}, {"doctor", ""},
		{"memory", "serve", "--size", "1G"}, {"memory", "serve", "--device", "emu:?wire=mem:x"}, {"memory", "stat"},
		{"memory", "stat", "--device", "emu:?wire=mem:x", "--server", ""},
	} {
		says := " is required: "
		if slices.Contains(args, "") {
			says = "must not be empty"
			if len(args) == 2 {
				says = `was given [""]`
			}
		}
		run(t, args...).refused(t, shell.ExitUsage, says)
	}
}

// TestWrongWire: an option of a device that is not known is named, whatever else is
// wrong with the address.
func TestWrongWire(t *testing.T) {
	const address = "emu:?wiree=udp://127.0.0.1:0"
	for _, args := range [][]string{{"recv"}, {"send", "x"}, {"ping"}, {"info"}, {"emulate", "--socket", filepath.Join(t.TempDir(), "s")}} {
		o := run(t, append(args, "--device", address)...)
		if o.code != shell.ExitDevice || !strings.Contains(o.stderr, `unknown option "wiree"`) || strings.Count(o.stderr, address) != 1 {
			t.Errorf("%v: %+v", args, o)
		}
	}
	if o := run(t, "recv", "--device", "emu:?wire=udp://256.0.0.1:1"); strings.Count(o.stderr, "open") != 1 {
		t.Errorf("%+v", o)
	}
}

// TestJSONKeysAreDocumented: each key that a command prints is in its help.
func TestJSONKeysAreDocumented(t *testing.T) {
	dir := t.TempDir()
	img, key := filepath.Join(dir, "x.img"), filepath.Join(dir, "key")
	program.TestJSON(t, [][]string{
		{"version"}, {"info"}, {"ps", "--interval", "0"}, {"list", "--root", bindableHost(t)}, {"bind", "--dry-run", "--root", bindableHost(t), hostpcitest.NIC().Address},
		{"unbind", "--dry-run", "--root", boundHost(t), hostpcitest.NIC().Address},
		{"ping", "-c", "1"}, {"conform", "--section", "layout"},
		{"fw", "build", "--image", "acl", "--output", img}, {"fw", "check", img}, {"fw", "keygen", key},
		{"fw", "sign", img, "--key", key + ".pem"}, {"fw", "verify", img, "--keys", dir}, {"fw", "show", img, "--keys", dir}, {"fw", "disasm", img},
		{"fw", "status", "--device", "emu:"}, {"load", "image:acl", "--device", "emu:"},
		{"frames", "echo", "--device", "emu:", "--ip", "10.0.0.1", "--duration", "1ms", "--image", "acl"},
		{"frames", "dump", "--device", "emu:", "--duration", "1ms", "--check"},
		{"frames", "dump", "--device", "emu:", "--duration", "1ms", "--output", filepath.Join(dir, "frames.pcapng")},
		{"frames", "gen", "--device", "emu:", "--count", "1"}, {"frames", "forward", "--device", "emu:", "--device", "emu:", "--duration", "1ms"},
		{"memory", "demo", "--size", "2M", "--memory", "1M"},
	})
	program.TestFailingJSON(t, shell.ExitFailure, "doctor", "--root", bindableHost(t)) // much is missing there
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
