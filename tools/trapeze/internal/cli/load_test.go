package cli_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/tools/internal/shell"
)

// programState is what commands say about a control program.
type programState struct {
	State, Name, Version, Digest string
	Slot                         *int
	Hooks                        []struct {
		Hook         string
		Installed    bool
		Runs, Faults uint64
		WorstCase    int `json:"worst_case_instructions"`
	}
}

// runs counts how often a program was asked at a hook.
func (p programState) runs(hook string) (n uint64) {
	for _, h := range p.Hooks {
		if h.Hook == hook {
			n = h.Runs
		}
	}
	return n
}

func TestLoadExitCodes(t *testing.T) {
	canceled, cancel := context.WithCancelCause(t.Context())
	cancel(&shell.SignalError{Number: 2, Name: "SIGINT"})
	for name, c := range map[string]struct {
		ctx  context.Context
		args []string
		code int
		says string
	}{
		"no such image":    {nil, []string{"load", "--device", "emu:", "image:fail"}, shell.ExitUsage, "cut-through"},
		"fw usage":         {nil, []string{"fw", "build", "--output", "x"}, shell.ExitUsage, "--from"},
		"too little time":  {nil, []string{"load", "--device", "emu:", "image:amp", "--timeout", "1ns"}, shell.ExitDevice, ""},
		"no such device":   {nil, []string{"fw", "status", "--device", "vfio-user:/nonexistent/nic"}, shell.ExitDevice, "nonexistent"},
		"not signed":       {nil, []string{"load", "--device", "pci:0000:00:00.0", "image:amp"}, shell.ExitFailure, "--allow-unsigned"},
		"interrupted":      {canceled, []string{"load", "--device", "emu:", "image:amp"}, 130, "SIGINT"},
		"maps of nothing":  {nil, []string{"demo", "--show-map", "flows"}, shell.ExitUsage, "--image"},
		"demo of no file":  {nil, []string{"demo", "--image", "fail"}, shell.ExitFailure, "no such file"},
		"demo at the host": {nil, []string{"demo", "--image", "amp", "--policy-at", "host"}, shell.ExitUsage, "in the NIC"},
		"bad setting":      {nil, []string{"demo", "--image", "acl", "--map", "rules=1"}, shell.ExitUsage, "MAP:KEY=VALUE"},
		"no such map":      {nil, []string{"demo", "--image", "acl", "--map", "roles:00=00"}, shell.ExitUsage, "rules"},
		"map not shown":    {nil, []string{"demo", "--image", "acl", "--show-map", "roles"}, shell.ExitUsage, "rules"},
		"short key":        {nil, []string{"demo", "--image", "acl", "--map", "rules:00=00"}, shell.ExitFailure, "wrong size"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := c.ctx
			if ctx == nil {
				ctx = t.Context()
			}
			if o := runWith(ctx, nil, c.args...); o.code != c.code || !strings.Contains(o.stderr, c.says) || strings.Count(o.stderr, "\n") != 1 || o.stdout != "" {
				t.Errorf("exit code %d instead of %d, %q", o.code, c.code, o.stderr)
			}
		})
	}
	_, err := os.Stat("x")
	should.Hold(t, err != nil, "a refused command has written its output")
}

// TestDemoImage: the program decides about every transfer, and the report says so.
func TestDemoImage(t *testing.T) {
	input, _ := file(t, "input", 300_000)
	type report struct {
		Program struct {
			Image string
			NICs  []struct {
				programState
				Maps map[string][]struct{ Key, Value string }
			}
		}
	}
	var r report
	decode(t, run(t, "demo", "--duration", "20ms", "--json", "--input", input, "--image", "amp"), &r)
	must.Hold(t, r.Program.Image == "amp" && len(r.Program.NICs) == 2, "%+v", r)
	for _, n := range r.Program.NICs {
		should.Hold(t, n.Name == "amp" && n.State == "running" && n.runs("pulse/tx") != 0 && n.runs("pulse/rx") != 0 && n.runs("filter/rx") == 0, "%+v", n)
	}
	image := filepath.Join(t.TempDir(), "ipt")
	run(t, "fw", "build", "--image", "ipt", "--output", image).exit(t, shell.ExitOK)
	o := run(t, "demo", "--duration", "20ms", "--input", input, "--image", image, "--map", "entries:02000000=0100000009000000", "--show-map", "entries")
	o.exit(t, shell.ExitOK, "  ipt\n", "demux/rx ", "02000000  0100000009000000\n", "  amp\n")
}
