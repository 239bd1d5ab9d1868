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

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser"
)

// TestListen: the errors say what is wrong and what helps. Package unixsocket has tests of the rest.
func TestListen(t *testing.T) {
	leaktest.Check(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "nic.sock")
	l := must.Get(vfiouser.Listen(path, 0o620))(t)
	defer l.Close()
	if info, err := os.Stat(path); err != nil || info.Mode() != fs.ModeSocket|0o620 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	for _, tt := range []struct {
		name, path string
		want       error
	}{
		{"in use", path, unix.EADDRINUSE},
		{"folder", dir, unix.EADDRINUSE},
		{"in no folder", filepath.Join(dir, "none", "nic.sock"), fs.ErrNotExist},
		{"empty", "", vfio.ErrBadAddress},
		{"abstract", "@nic", vfio.ErrBadAddress},
		{"too long", "/" + strings.Repeat("x", 107), vfio.ErrBadAddress},
	} {
		other, err := vfiouser.Listen(tt.path, 0o600)
		var e *vfio.Error
		should.Hold(t, other == nil && errors.Is(err, tt.want) && errors.As(err, &e) && e.Hint != "", "%s: %v", tt.name, err)
	}
}

// TestServeForeignListener: only UNIX sockets can pass descriptors.
func TestServeForeignListener(t *testing.T) {
	leaktest.Check(t)
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	should.Fail(t, vfiouser.Serve(t.Context(), l, newCopier(t), quiet), vfio.ErrNotSupported)
	should.Refuse(l.Accept())(t, net.ErrClosed, "the listener is open")
}
