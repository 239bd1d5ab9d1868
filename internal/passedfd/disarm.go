package passedfd

import (
	"errors"

	"golang.org/x/sys/unix"
)

// disarm does what can be done that closing a descriptor does not wait. Data that
// a connection's peer has not read is sent in the background, as is usual. A UNIX
// socket is shut down, also for others who have it; found gets the descriptors that
// are in messages to it.
func disarm(fd int, found func(fds []int)) {
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return // it is no socket
	}
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{})
	if domain != unix.AF_UNIX {
		return
	}
	// From here on peers can neither send nor connect, so there is an end to what
	// follows. The kernel lets sockets be in messages to sockets four levels deep.
	_ = unix.Shutdown(fd, unix.SHUT_RDWR)
	if listens, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err == nil && listens != 0 {
		for {
			c, _, err := unix.Accept4(fd, unix.SOCK_CLOEXEC)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil {
				return
			}
			disarm(c, found)
			_ = unix.Close(c)
		}
	}
	kind, _ := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	// With this, even an empty message brings something: credentials. The end of
	// such a socket does not, while that of a stream may.
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PASSCRED, 1)
	data, control := make([]byte, 4096), NewControl()
	for {
		n, length, _, _, err := unix.Recvmsg(fd, data, control, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil, n == 0 && (length == 0 || kind == unix.SOCK_STREAM):
			return
		}
		found(Parse(control[:length]))
	}
}
