package memif_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/ci/kit/wiretest"
	"github.com/trapeze-nic/trapeze/wire/internal/memif"
)

// timeout ends tests that block for ever. Nothing here is meant to take long, but
// CI machines are busy.
const timeout = time.Minute

func TestMain(m *testing.M) {
	if arguments := os.Getenv(echoVariable); arguments != "" {
		if err := echo(arguments); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	leaktest.Main(m)
}

// socketPath returns a path for a socket: short enough, and gone with the test.
func socketPath(t testing.TB) string {
	t.Helper()
	dir := must.Get(os.MkdirTemp("", "memif"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "socket")
}

// newPort makes a port that is closed with the test.
func newPort(t testing.TB, o memif.Options) *memif.Port {
	t.Helper()
	p := must.Get(memif.New(o))(t)
	t.Cleanup(func() {
		should.OK(t, p.Close())
	})
	return p
}

// connected returns two ports with a link between them. The roles are those of
// a, and the other; the socket is a new one unless a has one.
func connected(t testing.TB, a, b memif.Options) (*memif.Port, *memif.Port) {
	t.Helper()
	if a.Role == 0 {
		a.Role = memif.Server
	}
	if a.Socket == "" {
		a.Socket = socketPath(t)
	}
	b.Socket, b.Role = a.Socket, memif.Client+memif.Server-a.Role
	p, q := newPort(t, a), newPort(t, b)
	waittest.Until(t, "link up", func() bool { return p.LinkUp() && q.LinkUp() })
	return p, q
}

// mappings counts all.
func mappings(t testing.TB) int { return strings.Count(maps(t), "\n") }

func maps(t testing.TB) string {
	t.Helper()
	b := must.Get(os.ReadFile("/proc/self/maps"))(t)
	return string(b)
}

// abstractSocket returns the name of a socket that is in no file system.
func abstractSocket(t testing.TB) string {
	return fmt.Sprintf("@trapeze-memif-%d-%d", os.Getpid(), time.Now().UnixNano())
}

// The calls of most tests.
var send, receive = wiretest.Send, wiretest.Receive

// pattern returns n bytes that differ from those of other frames.
func pattern(number, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(number*31 + i*7 + i>>8)
	}
	return b
}
