package cli_test

import (
	"path/filepath"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/shelltest"
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
		{Command: "capture", Flag: "output", Args: wire},
		{Command: "conform", Flag: "junit", Args: []string{"--section", "layout"}, Quick: true},
		{Command: "demo", Flag: "dma-log", Args: []string{"--input", image}, Quick: true},
		{Command: "demo", Flag: "output", Args: []string{"--policies"}},
		{Command: "ping", Flag: "dma-log", Args: few, Quick: true},
		{Command: "recv", Flag: "dma-log", Args: wire},
		{Command: "recv", Flag: "output", Args: wire},
		{Command: "send", Flag: "dma-log", Args: append(wire, "/dev/null")},
		{Command: "frames dump", Flag: "output", Args: []string{"--device", "emu:", "--duration", "1ms"}, Quick: true},
		{Command: "fw build", Flag: "output", Args: []string{"--image", "acl"}, Quick: true},
		{Command: "fw sign", Flag: "output", Args: []string{image, "--key", key + ".pem"}, Quick: true},
		{Command: "memory map", Flag: "save", Args: append(wire, "--timeout", "10s")},
	}
}

func TestFilesAreNotReplaced(t *testing.T) { program.TestNotReplaced(t, written(t)) }

func TestWritersAreListed(t *testing.T) { program.TestWriters(t, written(t)) }
