package protocol_test

import (
	"errors"
	"net"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/passedfd"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser/internal/protocol"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// pair returns the two ends of a connection. It checks that the test leaks no
// descriptors.
func pair(t testing.TB) (a, b *net.UnixConn) {
	t.Helper()
	before := leaktest.Files(t)
	fds := must.Get(unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))(t)
	conn := func(fd int) *net.UnixConn {
		f := os.NewFile(uintptr(fd), "socket")
		defer f.Close()
		c := must.Get(net.FileConn(f))(t)
		return c.(*net.UnixConn)
	}
	a, b = conn(fds[0]), conn(fds[1])
	t.Cleanup(func() {
		_ = a.Close()
		_ = b.Close()
		should.Be(t, leaktest.Files(t), before, "open files")
	})
	return a, b
}

func message(size u32, flags protocol.Flags, payload string) []byte {
	h := protocol.Header{ID: 7, Command: protocol.CommandRegionWrite, Size: size, Flags: flags}
	return append(h.Append(nil), payload...)
}

// send writes b with n file descriptors, all of /dev/null.
func send(t *testing.T, c *net.UnixConn, b []byte, n int) {
	t.Helper()
	null := must.Get(os.Open(os.DevNull))(t)
	defer null.Close()
	var rights []byte
	if n > 0 {
		fds := make([]int, n)
		for i := range fds {
			fds[i] = int(null.Fd())
		}
		rights = unix.UnixRights(fds...)
	}
	_, _, err := c.WriteMsgUnix(b, rights, nil)
	must.OK(t, err)
}

// TestConnSplit sends messages in pieces, down to single bytes, with the file
// descriptors in one of them.
func TestConnSplit(t *testing.T) {
	for _, piece := range []int{1, 3, 15, 16, 17, 19} {
		for _, with := range []int{0, 5, 16, 18} {
			here, there := pair(t)
			c := protocol.NewConn(there, 64, 2)
			b := message(20, 0, "data")
			done := make(chan struct{})
			go func() {
				defer close(done)
				for i := 0; i < len(b); i += piece {
					n := 0
					if with >= i && with < i+piece {
						n = 1
					}
					send(t, here, b[i:min(i+piece, len(b))], n)
				}
			}()
			m, err := c.Receive()
			<-done
			should.Hold(t, err == nil && string(m.Payload) == "data" && len(m.FDs) == 1,
				"pieces of %d, fd at %d: %+v, %v", piece, with, m, err)
			passedfd.Close(m.FDs...)
		}
	}
}

// TestConnDribbles: file descriptors with each byte do not add up.
func TestConnDribbles(t *testing.T) {
	here, there := pair(t)
	c := protocol.NewConn(there, 64, 2)
	before := leaktest.Files(t)
	for _, x := range message(20, 0, "data") {
		send(t, here, []byte{x}, 100)
	}
	_, err := c.Receive()
	var e *protocol.Error
	should.Hold(t, errors.As(err, &e) && e.Field == "number of file descriptors", "got %v", err)
	should.Be(t, leaktest.Files(t), before, "open files")
}

func TestConnWithoutDescriptors(t *testing.T) {
	here, there := pair(t)
	c := protocol.NewConn(there, 64, 4)
	send(t, here, message(20, 0, "data"), 4)
	var old unix.Rlimit
	must.OK(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	low := old
	low.Cur = uint64(leaktest.Files(t)) + 1
	must.OK(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &low))
	m, err := c.Receive()
	must.OK(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old))
	should.Hold(t, errors.Is(err, syscall.EMFILE) && m.FDs == nil, "got %+v, %v", m, err)
}
