package cli_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/outputtest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/tools/internal/shell"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/cli"
)

func digestOf(t *testing.T, path string) string {
	t.Helper()
	b := must.Get(os.ReadFile(path))(t)
	d := sha256.Sum256(b)
	return hex.EncodeToString(d[:])
}

// file makes one of n random bytes.
func file(t *testing.T, name string, n int) (path string, content []byte) {
	t.Helper()
	content = make([]byte, n)
	rand.Read(content)
	path = filepath.Join(t.TempDir(), name)
	must.OK(t, os.WriteFile(path, content, 0o640))
	return path, content
}

func left(t *testing.T, dir string) []string {
	t.Helper()
	entries := must.Get(os.ReadDir(dir))(t)
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// transferFile runs a receiver and a sender on one wire in memory.
func transferFile(t *testing.T, stdin io.Reader, options string, recv, send []string) (r, s outcome) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	wire := "emu:?wire=mem:" + rand.Text() + options
	done := make(chan outcome, 1)
	go func() {
		done <- runWith(ctx, nil, append([]string{"recv", "--device", wire, "--timeout", "20s"}, recv...)...)
	}()
	s = runWith(ctx, stdin, append([]string{"send", "--device", wire}, send...)...)
	return <-done, s
}

// transferred is transferFile for a file that must arrive.
func transferred(t *testing.T, recv, send []string) {
	t.Helper()
	r, s := transferFile(t, nil, "", recv, send)
	r.exit(t, shell.ExitOK)
	s.exit(t, shell.ExitOK)
}

func TestSendAndReceive(t *testing.T) {
	for name, c := range map[string]struct {
		size    int
		options string
	}{
		"empty":             {0, ""},
		"one byte":          {1, ""},
		"one chunk":         {256<<10 - 16, ""},
		"one chunk and 1":   {256<<10 - 15, ""},
		"several chunks":    {3_000_001, ""},
		"small frames":      {500_000, "&mtu=512"},
		"20 % loss":         {1_000_000, "&loss=0.2&seed=3"},
		"every sort of ill": {500_000, "&loss=0.1&duplicate=0.1&reorder=0.1&corrupt=0.1&seed=5"},
	} {
		t.Run(name, func(t *testing.T) {
			input, content := file(t, "größe.bin", c.size)
			out := filepath.Join(t.TempDir(), "out.bin")
			r, s := transferFile(t, nil, c.options, []string{"--output", out, "--json"}, []string{"--json", input})
			var rr, sr map[string]any
			decode(t, r, &rr)
			decode(t, s, &sr)
			must.Same(t, must.Get(os.ReadFile(out))(t), content)
			for _, m := range []map[string]any{rr, sr} {
				if m["bytes"] != float64(c.size) || m["sha256"] != digestOf(t, input) || m["name"] != "größe.bin" || m["peer"] == "" {
					t.Errorf("report %v", m)
				}
			}
			should.Hold(t, rr["output"] == out && rr["confirmed"] == true, "receiver's report %v", rr)
			st, _ := os.Stat(out)
			should.Hold(t, st.Mode().Perm()&^0o640 == 0, "mode %v", st.Mode())
			n := left(t, filepath.Dir(out))
			should.Hold(t, len(n) == 1, "left behind: %v", n)
		})
	}
}

func TestStandardStreams(t *testing.T) {
	content := strings.Repeat("a stream of unknown length\n", 40_000)
	r, s := transferFile(t, strings.NewReader(content), "", []string{"--output", "-"}, []string{"-"})
	r.exit(t, shell.ExitOK)
	s.exit(t, shell.ExitOK, "stdin")
	should.Be(t, r.stdout, content, "%d of %d bytes on stdout", len(r.stdout), len(content))
	should.Contain(t, r.stderr, "bytes      1080000")
}

func TestSendersName(t *testing.T) {
	t.Chdir(t.TempDir())
	input, content := file(t, "its-name", 100)
	transferred(t, nil, []string{input})
	must.Same(t, must.Get(os.ReadFile("its-name"))(t), content)
	r, s := transferFile(t, nil, "", nil, []string{input})
	r.exit(t, shell.ExitFailure, "--force")
	s.exit(t, shell.ExitFailure, "exists already")
	transferred(t, []string{"--force"}, []string{"--name", "its-name", "-"})
	st, err := os.Stat("its-name")
	should.Hold(t, err == nil && st.Size() == 0, "not replaced: %v, %v", st, err)
	n := left(t, ".")
	should.Hold(t, len(n) == 1, "left behind: %v", n)
}

func TestNobodyIsThere(t *testing.T) {
	input, _ := file(t, "in", 100)
	o := run(t, "send", "--device", "emu:?wire=udp://127.0.0.1:0&peer=127.0.0.1:9", "--timeout", "300ms", input)
	o.exit(t, shell.ExitTimeout, "no NIC answered", "tried for 300ms", "trapeze recv")
	dir := t.TempDir()
	o = run(t, "recv", "--device", "emu:?wire=udp://127.0.0.1:0", "--timeout", "200ms", "--output", filepath.Join(dir, "out"))
	if o.code != shell.ExitTimeout || !strings.Contains(o.stderr, "no sender within 200ms") || len(left(t, dir)) != 0 {
		t.Errorf("recv: %+v, left %v", o, left(t, dir))
	}
}

func TestWaitingIsInterrupted(t *testing.T) {
	input, _ := file(t, "in", 100)
	for _, args := range map[string][]string{
		"recv": {"recv", "--device", "emu:?wire=udp://127.0.0.1:0"},
		"send": {"send", "--device", "emu:?wire=udp://127.0.0.1:0&peer=127.0.0.1:9", input},
	} {
		runWith(signalled(t, 200*time.Millisecond), nil, args...).exit(t, 130)
	}
	interrupted(t, "echoed", "ping", "--serve", "--device", "emu:?wire=udp://127.0.0.1:0").exit(t, shell.ExitOK)
}

// TestRecvTellsHowToSend checks the line by doing what it says.
func TestRecvTellsHowToSend(t *testing.T) {
	port := freePort(t)
	input, content := file(t, "in", 50_000)
	out := filepath.Join(t.TempDir(), "out")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var stdout, stderr outputtest.Buffer
	done := make(chan int, 1)
	go func() {
		done <- cli.Program.Run(ctx, []string{"recv", "--device", fmt.Sprintf("emu:?wire=udp://127.0.0.1:%d", port), "--output", out}, nil, &stdout, &stderr)
	}()
	for !strings.Contains(stderr.String(), "FILE\n") && ctx.Err() == nil {
		time.Sleep(5 * time.Millisecond)
	}
	_, device, _ := strings.Cut(stderr.String(), "--device '")
	device, _, _ = strings.Cut(device, "'")
	s := runWith(ctx, nil, "send", "--device", device, input)
	code := <-done
	must.Hold(t, code == 0 && s.code == 0, "receiver %d %q, sender %+v", code, stderr.String(), s)
	must.Same(t, must.Get(os.ReadFile(out))(t), content)
}

func TestPlainProgress(t *testing.T) {
	r, w := io.Pipe()
	go func() {
		for range 15 {
			w.Write(make([]byte, 1000))
			time.Sleep(100 * time.Millisecond)
		}
		w.Close()
	}()
	recv, send := transferFile(t, r, "", []string{"--progress", "plain", "--output", "-"}, []string{"--progress", "plain", "--json", "-"})
	if !strings.Contains(send.stderr, "sending stdin: ") || !strings.Contains(recv.stderr, "receiving stdin: ") {
		t.Errorf("sender %q, receiver %q", send.stderr, recv.stderr)
	}
	should.Hold(t, json.Valid([]byte(send.stdout)), "stdout %q", send.stdout)
}

// TestOfferedNames: a sender cannot make a receiver write a file that is hidden or
// looks like an option, nor one that can be executed.
func TestOfferedNames(t *testing.T) {
	input, content := file(t, "in", 100)
	must.OK(t, os.Chmod(input, 0o777))
	for _, name := range []string{".profile", "..x", "-rf", "-"} {
		dir := t.TempDir()
		t.Chdir(dir)
		r, s := transferFile(t, nil, "", nil, []string{"--name", name, input})
		r.exit(t, shell.ExitFailure, name, "--output")
		s.exit(t, shell.ExitFailure, "is not taken from a sender")
		should.Same(t, left(t, dir), nil, "%s: left behind", name)
		// Who chooses the name himself may choose any.
		out := filepath.Join(dir, name)
		transferred(t, []string{"--output", out}, []string{"--name", name, input})
	}
	defer unix.Umask(unix.Umask(0o022))
	t.Chdir(t.TempDir())
	transferred(t, nil, []string{"--name", "tool", input})
	st, err := os.Stat("tool")
	should.Hold(t, err == nil && st.Mode() == 0o644 && st.Size() == int64(len(content)), "%v, %v", st, err)
}
