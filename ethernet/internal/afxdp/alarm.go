package afxdp

import (
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ethernet"
)

// alarm waits for the frames of a socket by the runtime's poller, so that it holds no thread. The
// poller sees a set (epoll) that has the socket only while a goroutine waits. While a socket is in a
// set the kernel calls back for each frame that comes or was sent: a twelfth of a sender's time.
type alarm struct {
	socket, set int
	file        *os.File // of the set
	conn        syscall.RawConn
}

func newAlarm(socket int) (_ *alarm, err error) {
	set, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(set, true); err != nil { // the runtime's poller wants it so
		return nil, errors.Join(os.NewSyscallError("fcntl", err), unix.Close(set))
	}
	a := &alarm{socket: socket, set: set, file: os.NewFile(uintptr(set), "epoll of AF_XDP")}
	if a.conn, err = a.file.SyscallConn(); err != nil {
		return nil, errors.Join(err, a.close())
	}
	return a, nil
}

// wait returns once arrived does so, for which it is asked when there may be frames. It fails with
// os.ErrDeadlineExceeded after ethernet.WaitLimit, and after stop.
func (a *alarm) wait(arrived func(uintptr) bool) error {
	if err := unix.EpollCtl(a.set, unix.EPOLL_CTL_ADD, a.socket, &unix.EpollEvent{Events: unix.EPOLLIN}); err != nil {
		return os.NewSyscallError("epoll_ctl", err)
	}
	err := a.file.SetReadDeadline(time.Now().Add(ethernet.WaitLimit))
	if err == nil {
		err = a.conn.Read(arrived)
	}
	return errors.Join(err, os.NewSyscallError("epoll_ctl", unix.EpollCtl(a.set, unix.EPOLL_CTL_DEL, a.socket, nil)))
}

// stop ends a wait, or one that begins meanwhile ends by itself. It may be called from any goroutine.
func (a *alarm) stop() { _ = a.file.SetReadDeadline(time.Unix(1, 0)) }

func (a *alarm) close() error { return a.file.Close() }
