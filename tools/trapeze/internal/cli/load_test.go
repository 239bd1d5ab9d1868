package cli_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

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

// TestLoadServed loads programs into NICs that another process has; they stay while
// commands come and go.
func TestLoadServed(t *testing.T) {
	sockets := socketPaths(t, 2)
	stop := serving(t, sockets)
	device := "vfio-user:" + sockets[0]
	type report struct {
		Backend string
		Program programState
	}
	status := func() (r report) {
		decode(t, run(t, "fw", "status", "--device", device, "--json"), &r)
		return r
	}
	var first, second, info report
	decode(t, run(t, "load", "--device", device, "image:amp", "--json"), &first)
	if r := status(); r.Backend != "vfio-user" || r.Program.State != "running" || r.Program.Name != "amp" || r.Program.Digest != first.Program.Digest {
		t.Errorf("%+v", r)
	}
	decode(t, run(t, "load", "--device", device, "image:count", "--json"), &second)
	decode(t, run(t, "info", "--device", device, "--json"), &info)
	if p := info.Program; p.State != "running" || p.Name != "count" || p.Digest != second.Program.Digest || *p.Slot == *first.Program.Slot {
		t.Errorf("%+v", p)
	}
	if o := run(t, "info", "--device", device); !strings.Contains(o.stdout, "running, count 1.0 in slot") ||
		!strings.Contains(o.stdout, "filter/rx: 0 runs, 0 faults, 77 instructions at worst") || !strings.Contains(o.stdout, info.Program.Digest) {
		t.Errorf("%+v", o)
	}

	// A file crosses both NICs.
	in, content := file(t, "input", 1<<20)
	out := filepath.Join(t.TempDir(), "output")
	received := make(chan outcome, 1)
	go func() { received <- run(t, "recv", "--device", device, "--output", out, "--timeout", "30s") }()
	if s := run(t, "send", "--device", "vfio-user:"+sockets[1], "--timeout", "30s", in); s.code != shell.ExitOK {
		t.Fatalf("send: %d, %s", s.code, s.stderr)
	}
	if r := <-received; r.code != shell.ExitOK {
		t.Fatalf("recv: %d, %s", r.code, r.stderr)
	}
	if got, err := os.ReadFile(out); err != nil || !slices.Equal(got, content) {
		t.Errorf("%d bytes arrived, %v", len(got), err)
	}

	if o := run(t, "fw", "rollback", "--device", device); o.code != shell.ExitOK || !strings.Contains(o.stdout, "amp") {
		t.Errorf("%+v", o)
	}
	if p := status().Program; p.Name != "amp" || p.State != "running" {
		t.Errorf("%+v", p)
	}
	if o := run(t, "fw", "unload", "--device", device); o.code != shell.ExitOK || !strings.Contains(o.stdout, "built-in") {
		t.Errorf("%+v", o)
	}
	if p := status().Program; p.State != "built-in" || p.Name != "" {
		t.Errorf("%+v", p)
	}
	if o := run(t, "fw", "rollback", "--device", "vfio-user:"+sockets[1]); o.code != shell.ExitFailure || !strings.Contains(o.stderr, "no previous image") {
		t.Errorf("%+v", o)
	}
	if o := stop(); o.code != shell.ExitOK {
		t.Errorf("emulate ended with %+v", o)
	}
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
		"no image":         {nil, []string{"load", "--device", "emu:"}, shell.ExitUsage, "takes IMAGE, and was given no arguments"},
		"no device":        {nil, []string{"load", "image:amp"}, shell.ExitUsage, "--device"},
		"no such image":    {nil, []string{"load", "--device", "emu:", "image:fail"}, shell.ExitUsage, "cut-through"},
		"no such command":  {nil, []string{"fw", "fly"}, shell.ExitUsage, "fly"},
		"fw usage":         {nil, []string{"fw", "build", "--output", "x"}, shell.ExitUsage, "--from"},
		"bad progress":     {nil, []string{"load", "--device", "emu:", "image:amp", "--progress", "loud"}, shell.ExitUsage, "auto, bar, plain or none"},
		"no time":          {nil, []string{"load", "--device", "emu:", "image:amp", "--timeout", "0s"}, shell.ExitUsage, "--timeout"},
		"too little time":  {nil, []string{"load", "--device", "emu:", "image:amp", "--timeout", "1ns"}, shell.ExitDevice, ""},
		"bad address":      {nil, []string{"load", "--device", "eth0", "image:amp"}, shell.ExitDevice, "bad device address"},
		"no such device":   {nil, []string{"fw", "status", "--device", "vfio-user:/nonexistent/nic"}, shell.ExitDevice, "nonexistent"},
		"file not there":   {nil, []string{"load", "--device", "emu:", "/nonexistent/image"}, shell.ExitFailure, "no such file"},
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
	if _, err := os.Stat("x"); err == nil {
		t.Error("a refused command has written its output")
	}
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
	if r.Program.Image != "amp" || len(r.Program.NICs) != 2 {
		t.Fatalf("%+v", r)
	}
	for _, n := range r.Program.NICs {
		if n.Name != "amp" || n.State != "running" || n.runs("pulse/tx") == 0 || n.runs("pulse/rx") == 0 || n.runs("filter/rx") != 0 {
			t.Errorf("%+v", n)
		}
	}
	image := filepath.Join(t.TempDir(), "ipt")
	if o := run(t, "fw", "build", "--image", "ipt", "--output", image); o.code != shell.ExitOK {
		t.Fatal(o)
	}
	o := run(t, "demo", "--duration", "20ms", "--input", input, "--image", image, "--map", "entries:02000000=0100000009000000", "--show-map", "entries")
	for _, want := range []string{"control program ipt 1.0", "  a  demux/rx: ", "  b  entries: 02000000 = 0100000009000000\n", "delivery policy amp"} {
		if o.code != shell.ExitOK || !strings.Contains(o.stdout, want) {
			t.Errorf("%d, lacks %q: %s %s", o.code, want, o.stdout, o.stderr)
		}
	}
	if o := run(t, "demo", "--duration", "20ms", "--image", "acl", "--show-map", "rules"); !strings.Contains(o.stdout, "  a  rules: empty\n  b") {
		t.Errorf("an empty map: %d, %s %s", o.code, o.stdout, o.stderr)
	}
}
