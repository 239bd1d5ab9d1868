// Package activation lets a service manager such as systemd start a server: it
// hands over sockets that are open already, and wants to be told when the
// server is ready (sd_listen_fds(3), sd_notify(3)).
package activation

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/trapeze-nic/trapeze/internal/unixsocket"
)

// ErrEnvironment is wrapped by errors about variables that make no sense.
var ErrEnvironment = errors.New("bad environment of a service manager")

// firstFD is the first descriptor that is handed over (SD_LISTEN_FDS_START).
const firstFD = 3

// notifyTime bounds the wait for a service manager that does not read.
const notifyTime = 5 * time.Second

// maxSockets is more than a service manager hands over.
const maxSockets = 1024

// Socket is a listening socket that was handed over.
type Socket struct {
	// Name as the service manager has it (FileDescriptorName=); "unknown" if it
	// has none.
	Name     string
	Listener *unixsocket.Listener
}

// Sockets returns the sockets that were handed to this process, none if it was
// not started that way. It can be called once: it takes the sockets and clears
// the variables. It fails with ErrEnvironment, or if one of them is no listening
// UNIX stream socket; then all are closed.
func Sockets() ([]Socket, error) {
	pid, count, names := os.Getenv("LISTEN_PID"), os.Getenv("LISTEN_FDS"), os.Getenv("LISTEN_FDNAMES")
	if count == "" || pid == "" {
		return nil, nil
	}
	for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		if err := os.Unsetenv(name); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrEnvironment, name, err)
		}
	}
	n, err := countOf(pid, count, os.Getpid())
	if err != nil || n == 0 {
		return nil, err
	}
	return take(firstFD, n, names)
}

// countOf returns how many sockets the variables promise to process self.
func countOf(pid, count string, self int) (int, error) {
	p, err := strconv.Atoi(pid)
	if err != nil || p <= 0 {
		return 0, fmt.Errorf("%w: LISTEN_PID is %q", ErrEnvironment, pid)
	}
	if p != self {
		return 0, nil // they are for the process that has started us
	}
	n, err := strconv.Atoi(count)
	if err != nil || n < 0 || n > maxSockets {
		return 0, fmt.Errorf("%w: LISTEN_FDS is %q", ErrEnvironment, count)
	}
	return n, nil
}

// take makes listeners of n descriptors from first on, which it closes.
func take(first, n int, names string) (sockets []Socket, err error) {
	list := strings.Split(names, ":")
	for i := range n {
		name := "unknown"
		if i < len(list) && list[i] != "" {
			name = list[i]
		}
		l, lerr := listener(first + i)
		if lerr != nil {
			err = errors.Join(err, fmt.Errorf("socket %d %q: %w", i, name, lerr))
			continue
		}
		sockets = append(sockets, Socket{name, l})
	}
	if err != nil {
		for _, s := range sockets {
			_ = s.Listener.Close()
		}
		return nil, err
	}
	return sockets, nil
}

// listener makes a listener of a descriptor, which it closes if it is a socket.
func listener(fd int) (*unixsocket.Listener, error) {
	l, err := unixsocket.Passed(fd)
	if errors.Is(err, unixsocket.ErrKind) {
		err = fmt.Errorf("%w: %w", ErrEnvironment, err)
	}
	return l, err
}

// Ready tells the service manager that the server is ready. It reports false if
// there is none that wants to know.
func Ready() (bool, error) { return Notify("READY=1") }

// Stopping tells the service manager that the server is about to end.
func Stopping() (bool, error) { return Notify("STOPPING=1") }

// Notify tells the service manager something, see sd_notify(3). It reports false
// if there is none that wants to know.
func Notify(state string) (bool, error) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return false, nil
	}
	if path[0] != '/' && path[0] != '@' {
		return false, fmt.Errorf("%w: NOTIFY_SOCKET is %q", ErrEnvironment, path)
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return false, fmt.Errorf("notify the service manager: %w", err)
	}
	if err = c.SetWriteDeadline(time.Now().Add(notifyTime)); err == nil {
		_, err = c.Write([]byte(state))
	}
	if err := errors.Join(err, c.Close()); err != nil {
		return false, fmt.Errorf("notify the service manager: %w", err)
	}
	return true, nil
}
