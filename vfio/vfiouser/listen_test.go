package vfiouser_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser"
)

func TestListen(t *testing.T) {
	checkLeaks(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "nic.sock")
	l, err := vfiouser.Listen(path, 0o620)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != fs.ModeSocket|0o620 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	for _, tt := range []struct {
		name, path string
		want       error
	}{
		{"in use", path, unix.EADDRINUSE},
		{"file", file, unix.EADDRINUSE},
		{"folder", dir, unix.EADDRINUSE},
		{"in no folder", filepath.Join(dir, "none", "nic.sock"), fs.ErrNotExist},
		{"empty", "", vfio.ErrBadAddress},
		{"abstract", "@nic", vfio.ErrBadAddress},
		{"too long", "/" + strings.Repeat("x", 107), vfio.ErrBadAddress},
	} {
		other, err := vfiouser.Listen(tt.path, 0o600)
		var e *vfio.Error
		if other != nil || !errors.Is(err, tt.want) || !errors.As(err, &e) || e.Hint == "" {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	if b, err := os.ReadFile(file); string(b) != "precious" {
		t.Errorf("the file holds %q, %v", b, err)
	}
	// A server that died leaves its socket; the next one replaces it.
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	deadSocket(t, path)
	l, err = vfiouser.Listen(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
}

// deadSocket leaves a socket as a server does that has died.
func deadSocket(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestServeForeignListener: only UNIX sockets can pass descriptors.
func TestServeForeignListener(t *testing.T) {
	checkLeaks(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := vfiouser.Serve(t.Context(), l, newCopier(t), quiet); !errors.Is(err, vfio.ErrNotSupported) {
		t.Errorf("got %v", err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener is open: %v", err)
	}
}
