package cli_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/outputtest"
	"github.com/trapeze-nic/trapeze/tools/internal/shell"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/cli"
)

func TestExistingOutputIsRefusedAtOnce(t *testing.T) {
	out, content := file(t, "out", 10)
	o := run(t, "recv", "--device", "emu:?wire=udp://127.0.0.1:0", "--output", out)
	if o.code != shell.ExitFailure || !strings.Contains(o.stderr, "exists") || !strings.Contains(o.stderr, "--force") {
		t.Errorf("got %+v", o)
	}
	if got, _ := os.ReadFile(out); !bytes.Equal(got, content) {
		t.Error("it was touched")
	}
}

func TestUnwritableOutputIsRefusedAtOnce(t *testing.T) {
	const device = "emu:?wire=udp://127.0.0.1:0"
	t.Chdir(t.TempDir())
	if err := os.WriteFile("file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for output, says := range map[string]string{
		"no/such/directory": "no such file or directory",
		"new/":              "no such file or directory",
		"file/x":            "not a directory",
	} {
		o := run(t, "recv", "--device", device, "--output", output)
		if o.code != shell.ExitFailure || !strings.Contains(o.stderr, says) || strings.Contains(o.stderr, "waiting") {
			t.Errorf("%s: %+v", output, o)
		}
	}
	if err := os.Chmod(".", 0o500); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(".", 0o700) }) // for those who remove it
	if f, err := os.Create("x"); err == nil {
		f.Close()
		t.Skip("root writes anywhere")
	}
	for _, args := range [][]string{{"--output", "out"}, {"--output", "file", "--force"}, {}} {
		o := run(t, append([]string{"recv", "--device", device}, args...)...)
		if o.code != shell.ExitFailure || !strings.Contains(o.stderr, "permission denied") || strings.Contains(o.stderr, "waiting") {
			t.Errorf("%v: %+v", args, o)
		}
	}
}

// TestOutputBecomesUnwritable: the sender hears why its file is not taken, but not
// where it would have gone.
func TestOutputBecomesUnwritable(t *testing.T) {
	input, _ := file(t, "in", 100)
	dir := filepath.Join(t.TempDir(), "directory")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	wire := "emu:?wire=mem:" + rand.Text()
	var stdout, stderr outputtest.Buffer
	done := make(chan int, 1)
	go func() {
		done <- cli.Program.Run(ctx, []string{"recv", "--device", wire, "--output", filepath.Join(dir, "out")}, nil, &stdout, &stderr)
	}()
	for !strings.Contains(stderr.String(), "waiting for a file") && ctx.Err() == nil {
		time.Sleep(5 * time.Millisecond)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	s := runWith(ctx, nil, "send", "--device", wire, input)
	if code := <-done; code != shell.ExitFailure || !strings.Contains(stderr.String(), "no such file or directory") {
		t.Errorf("receiver %d, %q", code, stderr.String())
	}
	if s.code != shell.ExitFailure || !strings.Contains(s.stderr, "it cannot write the file: no such file or directory") || strings.Contains(s.stderr, dir) {
		t.Errorf("sender %+v", s)
	}
}
