package transfer_test

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
)

// newPipe makes two ends of a stream in memory.
func newPipe(t testing.TB) (a, b *net.UnixConn) {
	t.Helper()
	fds := must.Get(syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0))(t)
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "")
		c, err := net.FileConn(f)
		must.OK(t, errors.Join(err, f.Close()))
		ends[i] = c.(*net.UnixConn)
		t.Cleanup(func() { _ = c.Close() })
	}
	return ends[0], ends[1]
}

// say writes what need not make sense.
func say(t testing.TB, c io.Writer, parts ...string) {
	t.Helper()
	// The other side may have gone at the first of them.
	if _, err := io.WriteString(c, strings.Join(parts, "")); err != nil && !errors.Is(err, syscall.EPIPE) {
		t.Error(err)
	}
}

func chunk(data string) string {
	return string(binary.LittleEndian.AppendUint32(nil, uint32(len(data)))) + data
}

// final is a last line, and what ends the chunks before it.
func final(line string) string { return "\x00\x00\x00\x00" + line + "\n" }

func digest(bytes int, data string) string {
	return fmt.Sprintf(`{"bytes":%d,"sha256":"%x"}`, bytes, sha256.Sum256([]byte(data)))
}

// hear reads a line.
func hear(t testing.TB, c net.Conn) string {
	t.Helper()
	must.OK(t, c.SetReadDeadline(time.Now().Add(10*time.Second)))
	line, err := bufio.NewReader(c).ReadString('\n')
	must.OK(t, err, "got %q", line)
	return line
}

// memory is a sink.
type memory struct {
	mu                   sync.Mutex
	data                 []byte
	writeErr, commitErr  error
	committed, discarded bool
	blocked              chan struct{} // Write waits for it if not nil
}

func (m *memory) Write(b []byte) (int, error) {
	if m.blocked != nil {
		<-m.blocked
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.writeErr != nil {
		return 0, m.writeErr
	}
	m.data = append(m.data, b...)
	return len(b), nil
}

func (m *memory) Commit() error {
	if m.commitErr != nil {
		return m.commitErr
	}
	m.committed = true
	return nil
}

func (m *memory) Discard() error {
	m.discarded = true
	return nil
}
