// Package passedfd takes the file descriptors that another process passes over a
// UNIX socket (SCM_RIGHTS, unix(7)), finds out what they are, and closes them.
//
// The other process chooses what it passes, so both can be made to wait: closing
// a socket with SO_LINGER (socket(7)) waits for unread data, closing a
// file of a FUSE file system waits for the process that serves it, and so does
// asking for its size. Nothing in this package waits for longer than Timeout,
// whatever it is given.
package passedfd

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// most limits the descriptors that the kernel lets pass with one message (SCM_MAX_FD
// of Linux, net/scm.h).
const most = 253

// otherControl is room for control messages of other kinds, of which the kernel
// makes a few if the socket is set so: credentials, a pidfd.
const otherControl = 512

// NewControl makes a buffer for the control messages of one message. It has room
// for all descriptors that can come: those that have no room are closed by the
// kernel within recvmsg, which can wait as any close can.
func NewControl() []byte { return make([]byte, unix.CmsgSpace(4*most)+otherControl) }

// Parse returns the descriptors in control messages that recvmsg has written.
func Parse(control []byte) []int {
	// What the kernel has written can be parsed.
	messages, _ := unix.ParseSocketControlMessage(control)
	var all []int
	for i := range messages {
		m := &messages[i]
		if m.Header.Type == unix.SCM_PIDFD {
			// A socket that was passed may be set to bring them.
			m.Header.Type = unix.SCM_RIGHTS
		}
		fds, _ := unix.ParseUnixRights(m) // none of other kinds
		all = append(all, fds...)
	}
	return all
}

// IsMemory reports whether a descriptor is a file in memory that can have seals:
// memfd, tmpfs or hugetlbfs (fcntl(2), F_GET_SEALS). For all others the kernel
// says so without asking the file system, whose answer may never come.
func IsMemory(fd int) bool {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	return err == nil
}

// What the kernel calls the files that have no name, in /proc/self/fd. No file
// with a name can be called so: names there begin with a slash.
const (
	eventfdName = "anon_inode:[eventfd]"
	timerfdName = "anon_inode:[timerfd]"
)

func name(fd int) (string, error) { return os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)) }

// harmless reports whether a descriptor is of a kind whose close never waits.
func harmless(fd int) bool {
	if IsMemory(fd) {
		return true
	}
	n, err := name(fd)
	return err == nil && (n == eventfdName || n == timerfdName)
}
