package trapeze_test

import (
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/outputtest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
)

// TestLinesOfWires: what a wire logs has the format and the level that the user has named.
func TestLinesOfWires(t *testing.T) {
	needsProgram(t)
	key := filepath.Join(t.TempDir(), "key")
	must.OK(t, os.WriteFile(key, []byte(strings.Repeat("0123456789abcdef", 4)), 0o600))
	for flags, want := range map[string]string{
		"--log-format json": `"msg":"UDP wire: the peer has no key,`, "--log-level warn": `level=WARN msg="UDP wire: the peer has no key,`, "--log-level error": "",
	} {
		receiver, sender := udpPair(t, "")
		recv := start(t, append(strings.Fields(flags), "recv", "--device", receiver+"&key="+key, "--output", filepath.Join(t.TempDir(), "out"))...)
		waittest.Until(t, "recv waits", func() bool { return strings.Contains(recv.stderr.String(), "waiting for a file") })
		should.Be(t, start(t, "send", "--timeout", "300ms", "--device", sender, randomFile(t, 10)).code(t), 5, "the exit code of send")
		waittest.Until(t, "a line as "+flags+" says", func() bool { return strings.Contains(recv.stderr.String(), want) })
		must.OK(t, recv.Process.Signal(syscall.SIGINT))
		if recv.code(t); want == "" && strings.Contains(recv.stderr.String(), "has no key") {
			t.Errorf("%s: %s", flags, &recv.stderr)
		}
	}
}

// randomFile makes a file of n bytes that are the same in every run.
func randomFile(t *testing.T, n int64) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "input.bin")
	f := must.Get(os.Create(name))(t)
	_, err := io.CopyN(f, rand.NewChaCha8([32]byte{1}), n)
	must.OK(t, errors.Join(err, f.Close()))
	return name
}

func lastLine(w *outputtest.Buffer) string {
	lines := strings.Split(strings.TrimSpace(w.String()), "\n")
	return lines[len(lines)-1]
}
