package cli_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/cli"
)

// writer is a command with a flag that names a file to write.
type writer struct {
	command, flag string
	// args are what else it needs.
	args []string
	// quick says that it ends by itself, and soon.
	quick bool
}

// written are all commands and flags that write files. fw keygen has none: it replaces no
// key.
func written(t *testing.T) []writer {
	wire, image := []string{"--device", "emu:?wire=mem:writes"}, filepath.Join(t.TempDir(), "x.img")
	if o := run(t, "fw", "build", "--image", "acl", "--output", image); o.code != 0 {
		t.Fatalf("%+v", o)
	}
	key := filepath.Join(t.TempDir(), "key")
	if o := run(t, "fw", "keygen", key); o.code != 0 {
		t.Fatalf("%+v", o)
	}
	few := []string{"--count", "2"}
	return []writer{
		{"bench", "svg", nil, false},
		{"bench", "hdr", nil, false},
		{"bench compare", "svg", []string{"--cores", "0,1"}, false},
		{"bench scaling", "svg", nil, false},
		{"channel listen", "capture", wire, false},
		{"channel ping", "capture", few, true},
		{"channel stream", "capture", append(wire, "--to", "02:00:00:00:00:01"), false},
		{"conform", "junit", []string{"--section", "layout"}, true},
		{"demo", "dma-log", []string{"--input", image}, true},
		{"ping", "dma-log", few, true},
		{"recv", "dma-log", wire, false},
		{"recv", "output", wire, false},
		{"send", "dma-log", append(wire, "/dev/null"), false},
		{"frames dump", "output", []string{"--device", "emu:", "--duration", "1ms"}, true},
		{"fw build", "output", []string{"--image", "acl"}, true},
		{"fw sign", "output", []string{image, "--key", key + ".pem"}, true},
		{"memory map", "save", append(wire, "--timeout", "10s"), false},
		{"model sweep", "output", []string{"--counts", "2"}, true},
		{"plot bandwidth", "output", []string{"--policies", "amp"}, true},
		{"plot cells", "output", nil, true},
		{"plot fetch", "output", nil, true},
		{"plot flow", "output", few, true},
		{"plot latency", "output", []string{"--policies", "amp"}, true},
		{"plot rate", "output", few, true},
		{"plot report", "output", nil, false},
		{"plot threshold", "output", nil, true},
		{"plot transfer", "output", nil, true},
	}
}

// TestFilesAreNotReplaced: a command refuses a file that exists before its work begins, and
// replaces it with --force.
func TestFilesAreNotReplaced(t *testing.T) {
	for _, c := range written(t) {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
		args := append(append(strings.Fields(c.command), c.args...), "--"+c.flag, path)
		o := run(t, args...)
		if o.code != cli.ExitFailure || o.stdout != "" || !strings.HasPrefix(o.stderr, "trapeze: --"+c.flag+": ") ||
			!strings.Contains(o.stderr, "file already exists (choose another name, or replace it with --force)") {
			t.Errorf("%v: %+v", args, o)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != "mine" {
			t.Errorf("%v: the file holds %.20q, %v", args, b, err)
		}
		if !c.quick {
			continue
		}
		if o := run(t, append(args, "--force")...); o.code != cli.ExitOK {
			t.Errorf("%v --force: %+v", args, o)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) == "mine" {
			t.Errorf("%v --force: the file holds %.20q, %v", args, b, err)
		}
	}
}

// TestWritersAreListed: no command has a flag for a file that it writes but those above.
func TestWritersAreListed(t *testing.T) {
	list := written(t)
	writes := regexp.MustCompile(`^file for|\b(write|store the file)\b`)
	tree(t, func(path []string, d described) {
		command, force := strings.Join(path, " "), false
		for _, f := range d.Flags {
			force = force || f.Name == "force" && f.Usage == "replace a file that exists"
		}
		for _, f := range d.Flags {
			is := slices.ContainsFunc(list, func(w writer) bool { return w.command == command && w.flag == f.Name })
			if is != (writes.MatchString(f.Usage) && strings.Contains(f.Usage, "file")) {
				t.Errorf("%s --%s %q: in the list %v", command, f.Name, f.Usage, is)
			}
			if is && !force {
				t.Errorf("%s has --%s and no --force", command, f.Name)
			}
		}
	})
}
