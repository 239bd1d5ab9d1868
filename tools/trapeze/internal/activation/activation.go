// Package activation takes the sockets that a service manager such as systemd hands over (sd_listen_fds(3)), and tells it
// how a server does (sd_notify(3)).
package activation

import (
	"errors"
	"fmt"
	"net"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/trapeze-nic/trapeze/internal/unixsocket"
)

// Sockets returns the sockets that were handed to this process, none if it was not started that way. It can be
// called once. It fails, and closes all, if one of them is no listening UNIX stream socket.
func Sockets() (sockets []*unixsocket.Listener, err error) {
	for _, file := range activation.Files(true) {
		l, lerr := net.FileListener(file)
		lerr = errors.Join(lerr, file.Close())
		switch ours, ok := l.(*net.UnixListener); {
		case lerr != nil:
			err = errors.Join(err, fmt.Errorf("socket %q: %w", file.Name(), lerr))
		case !ok || l.Addr().Network() != "unix":
			err = errors.Join(err, fmt.Errorf("socket %q is no UNIX stream socket: ListenStream= makes one", file.Name()), l.Close())
		default:
			ours.SetUnlinkOnClose(false)
			sockets = append(sockets, unixsocket.Own(ours))
		}
	}
	if err != nil {
		for _, s := range sockets {
			_ = s.Close()
		}
		return nil, err
	}
	return sockets, nil
}

// Notify tells the service manager something, if there is one that wants to know.
func Notify(state string) error {
	if _, err := daemon.SdNotify(false, state); err != nil {
		return fmt.Errorf("notify the service manager: %w", err)
	}
	return nil
}
