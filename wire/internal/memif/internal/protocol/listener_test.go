package protocol_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/wire/internal/memif/internal/protocol"
)

func TestDialNobody(t *testing.T) {
	checkFiles(t)
	for _, socket := range []string{filepath.Join(t.TempDir(), "s"), abstract(t)} {
		if c, err := protocol.Dial(socket); c != nil || err == nil {
			t.Errorf("%s: %v, error %v", socket, c, err)
		}
	}
}

func TestDeadSocketIsReplaced(t *testing.T) {
	checkFiles(t)
	path := filepath.Join(t.TempDir(), "s")
	// A server that died: its socket stays.
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
	l, err := protocol.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
}

func TestSocketInUse(t *testing.T) {
	checkFiles(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	listen(t, path)
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	stream := filepath.Join(dir, "stream")
	other, err := net.Listen("unix", stream)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	listen(t, abstract(t))
	for _, socket := range []string{path, file, stream, abstract(t)} {
		if l, err := protocol.Listen(socket); l != nil || !errors.Is(err, unix.EADDRINUSE) {
			t.Errorf("%s: %v, error %v", socket, l, err)
		}
	}
	if b, err := os.ReadFile(file); string(b) != "precious" {
		t.Errorf("the file holds %q, %v", b, err)
	}
	if l, err := protocol.Listen(filepath.Join(dir, "none", "s")); l != nil || !errors.Is(err, unix.ENOENT) {
		t.Errorf("no such folder: %v, error %v", l, err)
	}
}

// TestCloseLeavesOthersAlone: what has taken the socket's place stays.
func TestCloseLeavesOthersAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	first, err := protocol.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	listen(t, path)
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	c, err := protocol.Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	closing(t, c)
}
