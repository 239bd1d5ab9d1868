package pager

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/passedfd"
	"github.com/trapeze-nic/trapeze/netmem/internal/userfault"
)

// LinkVersion is that of the messages below. Mapper, pager and guard may be programs that
// were built at different times.
const LinkVersion = 2

// maxMessage is the greatest length of a message, in bytes.
const maxMessage = 32 << 10

// maxText, maxCauses and maxCause, two of them in bytes, bound what is told of an error, so that
// it fits into a message even if each byte is escaped by six.
const (
	maxText   = 1024
	maxCauses = 16
	maxCause  = 256
)

// Kind of a message.
type Kind string

// Kinds of messages, each with the fields that it has.
const (
	KindOpen   Kind = "open"   // to the pager: Version, Local, Ahead, Deadline
	KindOpened Kind = "opened" // from it: Size, PageSize
	KindMap    Kind = "map"    // to it: Base, with userfaultfd, file and the writing end of the pipe of life
	KindGuard  Kind = "guard"  // to the guard: Version, Base, Size, Deadline, with the same, but the reading end
	KindReady  Kind = "ready"  // from both
	KindSync   Kind = "sync"   // to the pager: ID
	KindStats  Kind = "stats"  // to the pager: ID
	KindDone   Kind = "done"   // from it: ID, Stats, Failure
	KindFailed Kind = "failed" // from both: Failure
)

// Message between mapper, pager and guard: a packet of JSON.
type Message struct {
	Kind     Kind
	Version  int           `json:",omitempty"`
	ID       uint64        `json:",omitempty"`
	Local    int64         `json:",omitempty"` // bytes
	Ahead    int64         `json:",omitempty"` // bytes
	Deadline time.Duration `json:",omitempty"`
	Base     uint64        `json:",omitempty"`
	Size     int64         `json:",omitempty"` // bytes
	PageSize int           `json:",omitempty"` // bytes
	Stats    *Stats        `json:",omitempty"`
	Failure  *Failure      `json:",omitempty"`
}

// ErrLink: the other process does not keep to the messages.
var ErrLink = errors.New("bad message between mapper and pager")

// Failure is an error of another process. errors.Is finds each error that it wrapped there
// and that has a text of its own.
type Failure struct {
	Text   string
	Causes []string
}

// NewFailure makes one of err; nil of nil.
func NewFailure(err error) *Failure {
	if err == nil {
		return nil
	}
	f := &Failure{Text: clip(err.Error(), maxText)}
	f.collect(err)
	return f
}

func (f *Failure) collect(err error) {
	if err == nil || len(f.Causes) == maxCauses {
		return
	}
	f.Causes = append(f.Causes, clip(err.Error(), maxCause))
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		f.collect(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, cause := range e.Unwrap() {
			f.collect(cause)
		}
	}
}

func clip(s string, most int) string { return strings.ToValidUTF8(s[:min(len(s), most)], "") }

func (f *Failure) Error() string { return f.Text }

// Is says whether the error wrapped target there.
func (f *Failure) Is(target error) bool { return slices.Contains(f.Causes, target.Error()) }

// Link carries messages between two processes.
type Link struct{ conn *net.UnixConn }

// NewLinks makes both ends of a link; the second is a file to be passed to another process.
func NewLinks() (*Link, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	l, err := OpenLink(fds[0])
	if err != nil {
		unix.Close(fds[1])
		return nil, nil, err
	}
	return l, os.NewFile(uintptr(fds[1]), "link"), nil
}

// OpenLink takes the end of a link that another process has passed. It owns the descriptor,
// also if it fails.
func OpenLink(fd int) (*Link, error) {
	file := os.NewFile(uintptr(fd), "link")
	if file == nil {
		return nil, fmt.Errorf("%w: descriptor %d is not open", ErrLink, fd)
	}
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, fmt.Errorf("%w: descriptor %d: %w", ErrLink, fd, err)
	}
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		conn.Close()
		return nil, fmt.Errorf("%w: descriptor %d is no UNIX socket", ErrLink, fd)
	}
	return &Link{unixConn}, nil
}

// Send sends a message with duplicates of descriptors. It fails if the other end has not
// read it by the deadline.
func (l *Link) Send(m Message, deadline time.Time, fds ...int) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(b) > maxMessage {
		return fmt.Errorf("%w: %d bytes", ErrLink, len(b))
	}
	if err := l.conn.SetWriteDeadline(deadline); err != nil {
		return err
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	_, _, err = l.conn.WriteMsgUnix(b, rights, nil)
	return err
}

// Receive returns the next message, and the descriptors that came with it, of which there
// are as many as it should have. It fails with io.EOF when the other end is closed, and with
// ErrLink. A zero deadline is none.
func (l *Link) Receive(deadline time.Time) (Message, []int, error) {
	if err := l.conn.SetReadDeadline(deadline); err != nil {
		return Message{}, nil, err
	}
	b, control := make([]byte, maxMessage), passedfd.NewControl()
	n, length, _, _, err := l.conn.ReadMsgUnix(b, control)
	if err != nil {
		if errors.Is(err, unix.ECONNRESET) {
			err = io.EOF
		}
		return Message{}, nil, err
	}
	fds := passedfd.Parse(control[:length])
	if n == 0 && len(fds) == 0 {
		return Message{}, nil, io.EOF
	}
	m, err := Parse(b[:n], len(fds))
	if err != nil {
		_ = passedfd.Close(fds...) // no caller goes on with the link
		return Message{}, nil, err
	}
	return m, fds, nil
}

// Parse checks a message that came with so many descriptors.
func Parse(b []byte, fds int) (Message, error) {
	var m Message
	if err := json.Unmarshal(b, &m); err != nil {
		return Message{}, fmt.Errorf("%w: %w", ErrLink, err)
	}
	want := 0
	if m.Kind == KindMap || m.Kind == KindGuard {
		want = 3
	}
	bad := func(field string, value any) (Message, error) {
		return Message{}, fmt.Errorf("%w: %q has %s %v", ErrLink, m.Kind, field, value)
	}
	page := int64(os.Getpagesize())
	switch {
	case fds != want:
		return bad("descriptors", fds)
	case (m.Kind == KindOpen || m.Kind == KindGuard) && m.Version != LinkVersion:
		return bad("version", m.Version)
	case (m.Kind == KindOpen || m.Kind == KindGuard) && m.Deadline <= 0:
		return bad("deadline", m.Deadline)
	case m.Kind == KindOpen && (m.Local < 0 || m.Ahead < 0):
		return bad("limits", fmt.Sprint(m.Local, m.Ahead))
	case (m.Kind == KindOpened || m.Kind == KindGuard) && (m.Size <= 0 || m.Size%page != 0):
		return bad("size", m.Size)
	case (m.Kind == KindMap || m.Kind == KindGuard) && (m.Base == 0 || m.Base%uint64(page) != 0 || m.Base+uint64(m.Size) < m.Base):
		return bad("base", m.Base)
	case m.Kind == KindFailed && m.Failure == nil:
		return bad("failure", nil)
	}
	return m, nil
}

// Close closes this end.
func (l *Link) Close() error { return l.conn.Close() }

// take makes a Memory and the end of a pipe of what came with KindMap or KindGuard. It owns
// the descriptors, also if it fails.
func take(fds []int, base uint64, size int64) (*Memory, *os.File, error) {
	object, err := userfault.Take(fds[0])
	if err != nil {
		_ = passedfd.Close(fds...)
		return nil, nil, err
	}
	var s unix.Stat_t
	if !passedfd.IsMemory(fds[1]) {
		err = fmt.Errorf("%w: the memory is no file in memory", ErrLink)
	} else if e := unix.Fstat(fds[1], &s); e != nil || s.Size != size {
		err = fmt.Errorf("%w: the memory is of %d bytes, not %d", ErrLink, s.Size, size)
	} else {
		err = unix.SetNonblock(fds[2], true)
	}
	if err != nil {
		_ = passedfd.Close(fds[1:]...)
		object.Close()
		return nil, nil, err
	}
	return &Memory{File: fds[1], Object: object, Base: base, Size: uint64(size)}, os.NewFile(uintptr(fds[2]), "life"), nil
}
