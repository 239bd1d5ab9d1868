package protocol_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/internal/passedfd"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser/internal/protocol"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// pair returns the two ends of a connection. It checks that the test leaks no
// descriptors.
func pair(t testing.TB) (a, b *net.UnixConn) {
	t.Helper()
	before := leaktest.Files(t)
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	conn := func(fd int) *net.UnixConn {
		f := os.NewFile(uintptr(fd), "socket")
		defer f.Close()
		c, err := net.FileConn(f)
		if err != nil {
			t.Fatal(err)
		}
		return c.(*net.UnixConn)
	}
	a, b = conn(fds[0]), conn(fds[1])
	t.Cleanup(func() {
		_ = a.Close()
		_ = b.Close()
		if n := leaktest.Files(t); n != before {
			t.Errorf("%d open files, %d before", n, before)
		}
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
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	var rights []byte
	if n > 0 {
		fds := make([]int, n)
		for i := range fds {
			fds[i] = int(null.Fd())
		}
		rights = unix.UnixRights(fds...)
	}
	if _, _, err := c.WriteMsgUnix(b, rights, nil); err != nil {
		t.Fatal(err)
	}
}

func TestConnSendsAndReceives(t *testing.T) {
	here, there := pair(t)
	a, b := protocol.NewConn(here, 1<<20, 4), protocol.NewConn(there, 1<<20, 4)
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	for _, tt := range []struct {
		payload []byte
		fds     int
	}{{nil, 0}, {[]byte("x"), 0}, {nil, 1}, {[]byte("four"), 4}, {big, 2}, {[]byte("after"), 0}} {
		var fds []int
		for range tt.fds {
			fds = append(fds, int(null.Fd()))
		}
		sent := make(chan error, 1)
		go func() {
			sent <- a.Send(protocol.Header{ID: 3, Command: protocol.CommandRegionWrite}, tt.payload, fds, time.Now().Add(5*time.Second))
		}()
		m, err := b.Receive()
		if err != nil {
			t.Fatal(err)
		}
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
		want := protocol.Header{ID: 3, Command: protocol.CommandRegionWrite, Size: uint32(16 + len(tt.payload))}
		if m.Header != want || !bytes.Equal(m.Payload, tt.payload) || len(m.FDs) != tt.fds {
			t.Errorf("got %+v, %d bytes, %d fds", m.Header, len(m.Payload), len(m.FDs))
		}
		passedfd.Close(m.FDs...)
	}
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
			if err != nil || string(m.Payload) != "data" || len(m.FDs) != 1 {
				t.Errorf("pieces of %d, fd at %d: %+v, %v", piece, with, m, err)
			}
			passedfd.Close(m.FDs...)
		}
	}
}

// TestConnRefuses: a bad message is refused, all of it is read, and the next one
// is received.
func TestConnRefuses(t *testing.T) {
	long := string(make([]byte, 10000))
	tests := []struct {
		name  string
		bytes []byte
		fds   int
		field string
	}{
		{"smaller than a header", message(15, 0, ""), 0, "size"},
		{"of no size, with a file descriptor", message(0, 0, ""), 1, "size"},
		{"of no type", message(20, 3, "data"), 0, "flags"},
		{"too long", message(16+65, 0, long[:65]), 0, "size"},
		{"much too long", message(10016, 0, long), 1, "size"},
		{"too many file descriptors", message(20, 0, "data"), 3, "number of file descriptors"},
		{"as many file descriptors as can be", message(20, 0, "data"), 253, "number of file descriptors"},
		{"too many file descriptors without payload", message(16, 0, ""), 3, "number of file descriptors"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			here, there := pair(t)
			c := protocol.NewConn(there, 64, 2)
			send(t, here, tt.bytes, tt.fds)
			send(t, here, message(20, 0, "good"), 2)
			m, err := c.Receive()
			var e *protocol.Error
			if !errors.As(err, &e) || e.Field != tt.field || !errors.Is(err, syscall.EINVAL) || m.Header.ID != 7 || m.FDs != nil {
				t.Errorf("got %+v, %v, want field %q", m, err, tt.field)
			}
			m, err = c.Receive()
			if err != nil || string(m.Payload) != "good" || len(m.FDs) != 2 {
				t.Errorf("next message: %+v, %v", m, err)
			}
			passedfd.Close(m.FDs...)
		})
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
	if !errors.As(err, &e) || e.Field != "number of file descriptors" {
		t.Errorf("got %v", err)
	}
	if n := leaktest.Files(t); n != before {
		t.Errorf("%d open files, %d before", n, before)
	}
}

func TestConnWithoutDescriptors(t *testing.T) {
	here, there := pair(t)
	c := protocol.NewConn(there, 64, 4)
	send(t, here, message(20, 0, "data"), 4)
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	low := old
	low.Cur = uint64(leaktest.Files(t)) + 1
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	m, err := c.Receive()
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(err, syscall.EMFILE) || m.FDs != nil {
		t.Errorf("got %+v, %v", m, err)
	}
}

func TestConnEnds(t *testing.T) {
	whole := message(20, 0, "data")
	for n, want := range map[int]error{0: io.EOF, 1: io.ErrUnexpectedEOF, 15: io.ErrUnexpectedEOF, 16: io.ErrUnexpectedEOF, 19: io.ErrUnexpectedEOF} {
		here, there := pair(t)
		c := protocol.NewConn(there, 64, 2)
		if n > 0 {
			send(t, here, whole[:n], 1)
		}
		if err := here.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Receive(); err != want {
			t.Errorf("after %d bytes: %v, want %v", n, err, want)
		}
	}
	// In the middle of a message that is skipped.
	here, there := pair(t)
	c := protocol.NewConn(there, 64, 2)
	send(t, here, message(1<<31, 0, "data"), 0)
	if err := here.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Receive(); err != io.ErrUnexpectedEOF {
		t.Errorf("in a skipped message: %v", err)
	}
}

func TestConnDeadlines(t *testing.T) {
	here, there := pair(t)
	a, b := protocol.NewConn(here, 1<<20, 2), protocol.NewConn(there, 1<<20, 2)
	if err := b.SetReceiveDeadline(time.Now().Add(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Receive(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Receive: %v", err)
	}
	// Nobody takes what is sent.
	for range 100 {
		err := a.Send(protocol.Header{}, make([]byte, 1<<20), nil, time.Now().Add(10*time.Millisecond))
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Error("Send never fails")
}
