package vfiouser

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/vfio"
)

// maxPath is how long the path of a UNIX socket can be (unix(7)).
const maxPath = 107

func checkPath(path string) error {
	if path == "" || len(path) > maxPath {
		return fmt.Errorf("%w: the path has %d bytes, want 1 to %d", vfio.ErrBadAddress, len(path), maxPath)
	}
	return nil
}

// Listen makes the socket of a server, with permissions mode: who can write to
// it can use the device. A socket that a dead server has left is replaced. It
// fails with vfio.ErrBadAddress, or an errno: EADDRINUSE if a server is there,
// or something that is no socket.
func Listen(path string, mode fs.FileMode) (*net.UnixListener, error) {
	fail := func(err error, hint string) (*net.UnixListener, error) {
		return nil, &vfio.Error{Op: "listen", Device: "vfio-user:" + path, Err: err, Hint: hint}
	}
	if err := checkPath(path); err != nil {
		return fail(err, "choose a shorter path")
	}
	if path[0] == '@' {
		// Everybody in the network namespace may connect to one.
		return fail(fmt.Errorf("%w: an abstract socket has no permissions", vfio.ErrBadAddress), "use a path; ./ in front makes one of this name")
	}
	if err := removeDead(path); err != nil {
		return fail(err, "choose another path, or stop what uses this one")
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return fail(err, "the folder of the socket must be there and writable")
	}
	// Until now the umask has kept others from connecting.
	if err := os.Chmod(path, mode.Perm()); err != nil {
		return fail(errors.Join(err, l.Close()), "")
	}
	return l, nil
}

// removeDead removes a socket at path that nobody listens at.
func removeDead(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%w: there is something that is no socket", unix.EADDRINUSE)
	}
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err == nil {
		return errors.Join(fmt.Errorf("%w: a server listens there", unix.EADDRINUSE), c.Close())
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		return err
	}
	return os.Remove(path)
}
