// Package unixsocket makes UNIX sockets that listen (unix(7)): at a path, or "@"
// and a name in the abstract namespace.
package unixsocket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gofrs/flock"
	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/passedfd"
	"github.com/trapeze-nic/trapeze/internal/pause"
)

const (
	// maxPath is the longest path of a UNIX socket in bytes: sun_path has
	// 108, one of them for the zero at its end. The first byte of an abstract name,
	// "@" here and zero in the kernel, counts.
	maxPath = 107
	// lockTime bounds the wait for the lock of a folder.
	lockTime = 2 * time.Second
)

// ByUmask is the mode of a socket that has the permissions that the umask leaves.
const ByUmask = ^fs.FileMode(0)

// CheckPath says what is wrong with the path of a socket, or with its name.
func CheckPath(path string) error {
	switch {
	case path == "" || path == "@" || len(path) > maxPath:
		return fmt.Errorf("path %q has %d bytes, want a path or @NAME of 1 to %d bytes", path, len(strings.TrimPrefix(path, "@")), maxPath)
	case strings.ContainsRune(path, 0):
		return fmt.Errorf("path %q has a zero byte", path)
	}
	return nil
}

// Listener is a socket that listens.
type Listener struct {
	*net.UnixListener
	path string // to be removed; empty for none
	// file is the one that path named: something else may take its place.
	file   fs.FileInfo
	remove sync.Once
}

// Own takes a socket that something else has made, and that has the path removed
// by what has made it.
func Own(l *net.UnixListener) *Listener { return &Listener{UnixListener: l} }

// Listen makes a socket of a network of package net, "unix" or "unixpacket". One
// at a path has the permissions mode from its first moment on, or ByUmask. A socket
// without a listener is replaced. Of several that do so at a time, one
// gets the path. Listen fails with EADDRINUSE if there is a listener at the path or
// something else than a socket is there, with the errors of CheckPath, of bind(2) and
// the like, or with that of ctx. It waits for others that are in it, for two seconds at
// most.
func Listen(ctx context.Context, network, path string, mode fs.FileMode) (*Listener, error) {
	if err := CheckPath(path); err != nil {
		return nil, err
	}
	if path[0] == '@' {
		l, err := net.ListenUnix(network, &net.UnixAddr{Name: path, Net: network})
		if err != nil {
			return nil, err
		}
		return Own(l), nil
	}
	unlock, err := lockFolder(ctx, filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := removeDead(network, path); err != nil {
		return nil, err
	}
	c := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		if mode == ByUmask {
			return nil
		}
		// bind(2) makes the file with the socket's own mode, less the umask.
		cerr := raw.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), uint32(mode.Perm())) })
		return errors.Join(cerr, os.NewSyscallError("fchmod", err))
	}}
	made, err := c.Listen(ctx, network, path)
	if err != nil {
		return nil, err
	}
	l := &Listener{UnixListener: made.(*net.UnixListener), path: path}
	l.SetUnlinkOnClose(false)
	if l.file, err = named(path, mode); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// named returns the file of a socket, of which it adds the permissions that the umask took. It follows no link that
// another user of the folder may have put in the place of the socket.
func named(path string, mode fs.FileMode) (fs.FileInfo, error) {
	f, err := os.OpenFile(path, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	file, err := f.Stat()
	if err == nil && mode != ByUmask && file.Mode().Type() == fs.ModeSocket && file.Mode().Perm() != mode.Perm() {
		err = os.Chmod(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), mode.Perm())
	}
	return file, err
}

// AcceptUnix waits for a client. It fails with net.ErrClosed after Close.
func (l *Listener) AcceptUnix() (*net.UnixConn, error) {
	c, err := l.UnixListener.AcceptUnix()
	if errors.Is(err, os.ErrDeadlineExceeded) { // passedfd.CloseConn sets it
		err = errors.Join(net.ErrClosed, err)
	}
	return c, err
}

// acceptPause is the pause when there are no descriptors for another client.
const acceptPause = 100 * time.Millisecond

var exhausted = []error{passedfd.ErrFull, unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.ENOBUFS, unix.ECONNABORTED, unix.EINTR}

// Each calls f with each client that connects, until ctx ends, which is no error, or the listener fails. While it cannot
// take any, for want of descriptors or memory or because too many descriptors wait to be closed, it tells warn, unless that is nil.
func (l *Listener) Each(ctx context.Context, f func(*net.UnixConn), warn func(error)) error {
	for ctx.Err() == nil {
		c, err := (*net.UnixConn)(nil), passedfd.ErrFull
		if !passedfd.Full() {
			c, err = l.AcceptUnix()
		}
		is := func(e error) bool { return errors.Is(err, e) }
		switch {
		case err == nil:
			f(c)
		case ctx.Err() != nil:
		case !slices.ContainsFunc(exhausted, is):
			return err
		default: // when a client goes, there may be some again
			if warn != nil {
				warn(err)
			}
			_ = pause.For(ctx, acceptPause)
		}
	}
	return nil
}

// Accept is AcceptUnix.
func (l *Listener) Accept() (net.Conn, error) { return l.AcceptUnix() }

// Close closes the socket, and removes its path unless something else has taken
// its place. It takes no longer than lockTime and passedfd.Timeout, whatever
// clients have sent that are not accepted yet. Accept fails.
func (l *Listener) Close() error {
	var err error
	l.remove.Do(func() {
		if l.file == nil {
			return
		}
		unlock, lerr := lockFolder(context.Background(), filepath.Dir(l.path))
		if lerr == nil {
			defer unlock()
		}
		// As long as the socket is open no other file can have its number.
		if now, serr := os.Lstat(l.path); serr == nil && os.SameFile(now, l.file) {
			err = os.Remove(l.path)
		}
	})
	passedfd.CloseConn(l.UnixListener)
	return err
}

// RemoveDead removes the sockets of a network in a folder whose name begins with prefix and
// that have no listener. Others are left, and so are errors: those sockets stay. It waits for
// others that are in Listen, for two seconds at most.
func RemoveDead(ctx context.Context, network, folder, prefix string) error {
	unlock, err := lockFolder(ctx, folder)
	if err != nil {
		return err
	}
	defer unlock()
	entries, err := os.ReadDir(folder)
	for _, e := range entries {
		if e.Type() == fs.ModeSocket && strings.HasPrefix(e.Name(), prefix) {
			_ = removeDead(network, filepath.Join(folder, e.Name()))
		}
	}
	return err
}

// lockFolder keeps others from replacing a dead socket in a folder at the same
// time: of two that find one, the second would remove what the first has made.
func lockFolder(ctx context.Context, folder string) (unlock func() error, err error) {
	limited, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	l := flock.New(folder, flock.SetFlag(os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK))
	_, err = l.TryLockContext(limited, 2*time.Millisecond)
	var open *fs.PathError
	switch {
	case ctx.Err() != nil:
		return nil, errors.Join(ctx.Err(), l.Close())
	case errors.As(err, &open) && !errors.Is(err, unix.EACCES): // a folder can be used without being read
		return nil, err
	}
	return l.Close, nil // also on a file system without locks, or if another process keeps it
}

// removeDead removes a socket without a listener.
func removeDead(network, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%w: there is something that is no socket", unix.EADDRINUSE)
	}
	// A connection to a UNIX socket is made, refused or not possible (EAGAIN) at once.
	c, err := net.DialUnix(network, nil, &net.UnixAddr{Name: path, Net: network})
	switch {
	case err == nil:
		return errors.Join(fmt.Errorf("%w: a server listens there", unix.EADDRINUSE), c.Close())
	case errors.Is(err, unix.EPROTOTYPE), errors.Is(err, unix.EAGAIN):
		return fmt.Errorf("%w: a server listens there: %w", unix.EADDRINUSE, err)
	case errors.Is(err, unix.ECONNREFUSED):
		return os.Remove(path)
	}
	return err
}

// Peer returns whose process is at the other end of a connection, as of when it
// connected or listened.
func Peer(c *net.UnixConn) (who *unix.Ucred, err error) {
	err = passedfd.Control(c, func(fd int) error {
		who, err = unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		return os.NewSyscallError("getsockopt", err)
	})
	return who, err
}
