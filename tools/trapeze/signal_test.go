package trapeze_test

import (
	"crypto/rand"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
)

// unread starts a command whose stdout somebody reads n bytes of, and then closes.
func unread(t *testing.T, n int64, args ...string) *process {
	t.Helper()
	r, w := must.Two(os.Pipe())(t)
	c := exec.Command(trapeze, args...)
	c.Stdout = w
	p := launch(t, c, args[0])
	_ = w.Close() // it is the command's
	go func() {
		_, _ = io.CopyN(io.Discard, r, n)
		_ = r.Close()
	}()
	return p
}

// TestNobodyReads: a command whose stdout was closed, as by head, ends as if by
// SIGPIPE, and yet leaves nothing behind.
func TestNobodyReads(t *testing.T) {
	ping := unread(t, 10, "ping", "--count", "0", "--interval", "1ms")
	ping.exit(t, long, 141)
	should.Be(t, ping.stderr.String(), "")

	dir := t.TempDir()
	wire := "emu:?wire=memif:" + filepath.Join(dir, "socket") + "&role="
	input := filepath.Join(t.TempDir(), "input")
	content := make([]byte, 10_000_000)
	rand.Read(content)
	must.OK(t, os.WriteFile(input, content, 0o600))
	recv := unread(t, 10, "recv", "--device", wire+"server", "--output", "-")
	send := start(t, "send", "--device", wire+"client", input)
	recv.exit(t, long, 141)
	send.exit(t, long, 4, "the other side")
	empty(t, dir)
}

// TestNoHangup: what nohup has started goes on when the terminal is closed.
func TestNoHangup(t *testing.T) {
	recvAt, sendAt := udpPair(t, "")
	serve := launch(t, exec.Command("sh", "-c", `trap "" HUP; exec "$@"`, "sh", trapeze, "ping", "--serve", "--device", recvAt), "ping")
	start(t, "ping", "--device", sendAt, "-c", "1", "-q").exit(t, long, 0)
	signal(t, serve, syscall.SIGHUP)
	start(t, "ping", "--device", sendAt, "-c", "1", "-q").exit(t, long, 0)
	signal(t, serve, syscall.SIGTERM)
	serve.exit(t, long, 0)
}
