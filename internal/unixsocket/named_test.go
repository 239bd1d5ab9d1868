package unixsocket

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
)

// TestNamed: a socket gets its permissions whatever the umask; what a link in its place leads to does not.
func TestNamed(t *testing.T) {
	folder := t.TempDir()
	socket, link := filepath.Join(folder, "socket"), filepath.Join(folder, "link")
	l := must.Get(net.Listen("unix", socket))(t)
	defer l.Close()
	must.OK(t, os.Chmod(socket, 0)) // as the strictest umask has it
	must.OK(t, os.Symlink(socket, link))
	for _, c := range []struct {
		path string
		want fs.FileMode
	}{{link, 0}, {socket, 0o640}} {
		if _, err := named(c.path, 0o640); err != nil {
			t.Error(err)
		}
		if now, err := os.Stat(socket); err != nil || now.Mode().Perm() != c.want {
			t.Errorf("after %s: %v, %v", c.path, now.Mode(), err)
		}
	}
}
