package cli_test

import (
	"path/filepath"
	"testing"

	"github.com/trapeze-nic/trapeze/tools/internal/shelltest"
)

// written are all commands and flags that write files. fw keygen has none: it replaces no
// key.
func written(t *testing.T) []shelltest.Writer {
	wire, image := []string{"--device", "emu:?wire=mem:writes"}, filepath.Join(t.TempDir(), "x.img")
	if o := run(t, "fw", "build", "--image", "acl", "--output", image); o.code != 0 {
		t.Fatalf("%+v", o)
	}
	key := filepath.Join(t.TempDir(), "key")
	if o := run(t, "fw", "keygen", key); o.code != 0 {
		t.Fatalf("%+v", o)
	}
	few := []string{"--count", "2"}
	return []shelltest.Writer{
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
	}
}

func TestFilesAreNotReplaced(t *testing.T) { program.TestNotReplaced(t, written(t)) }

func TestWritersAreListed(t *testing.T) { program.TestWriters(t, written(t)) }
