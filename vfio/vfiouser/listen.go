package vfiouser

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/unixsocket"
	"github.com/trapeze-nic/trapeze/vfio"
)

// Listen makes the socket of a server, with permissions mode: who can write to
// it can use the device. A socket that a dead server has left is replaced, and the
// path is removed with the listener unless something else has taken its place. It
// fails with vfio.ErrBadAddress, or an errno: EADDRINUSE if a server is there,
// or something that is no socket.
func Listen(path string, mode fs.FileMode) (net.Listener, error) {
	fail := func(err error, hint string) (net.Listener, error) {
		return nil, &vfio.Error{Op: "listen", Device: "vfio-user:" + path, Err: err, Hint: hint}
	}
	if err := unixsocket.CheckPath(path); err != nil {
		return fail(fmt.Errorf("%w: %w", vfio.ErrBadAddress, err), "choose a shorter path")
	}
	if path[0] == '@' {
		// Every process in the network namespace may connect to one.
		return fail(fmt.Errorf("%w: an abstract socket has no permissions", vfio.ErrBadAddress), "use a path; ./ in front makes one of this name")
	}
	l, err := unixsocket.Listen(context.Background(), "unix", path, mode.Perm())
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return fail(err, "choose another path, or stop what uses this one")
	case err != nil:
		return fail(err, "the folder of the socket must be there and writable")
	}
	return l, nil
}
