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
)

// LinkVersion is that of the messages below. Mapper and pager may be programs that were built at
// different times.
const LinkVersion = 3

// Descriptors that the pager's process is started with, and the guard's.
const (
	linkFD   = 3 // a socket to the mapper
	objectFD = 4 // the userfaultfd
	fileFD   = 5 // the file of the memory
	lifeFD   = 6 // of the guard: the reading end of a pipe that the pager writes to
)

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
	KindOpen   Kind = "open"   // to the pager: ID, Version, Local, Ahead, Deadline; done has Size and PageSize
	KindMap    Kind = "map"    // to it: ID, Base
	KindSync   Kind = "sync"   // to it: ID; done may have a Failure
	KindStats  Kind = "stats"  // to it: ID; done has Stats
	KindDone   Kind = "done"   // from it: the ID of what it has done
	KindFailed Kind = "failed" // from it, or from its guard: Failure
)

// Message between mapper and pager: a packet of JSON.
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
type Link struct{ conn net.Conn }

// NewLinks makes both ends of a link; the second is a file to be passed to another process.
func NewLinks() (*Link, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "link")
	l, err := openLink(os.NewFile(uintptr(fds[0]), "link"))
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return l, theirs, nil
}

// openLink takes an end of a link. It owns the file, also if it fails.
func openLink(file *os.File) (*Link, error) {
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLink, err)
	}
	return &Link{conn}, nil
}

// Send sends a message. It fails if the other end has not read it by the deadline.
func (l *Link) Send(m Message, deadline time.Time) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if err := l.conn.SetWriteDeadline(deadline); err != nil {
		return err
	}
	_, err = l.conn.Write(b)
	return err
}

// Receive returns the next message. It fails with io.EOF when the other end is closed, and with
// ErrLink. A zero deadline is none.
func (l *Link) Receive(deadline time.Time) (m Message, err error) {
	if err := l.conn.SetReadDeadline(deadline); err != nil {
		return m, err
	}
	b := make([]byte, maxMessage)
	n, err := l.conn.Read(b)
	if errors.Is(err, unix.ECONNRESET) {
		err = io.EOF
	}
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(b[:n], &m); err != nil {
		return m, fmt.Errorf("%w: %w", ErrLink, err)
	}
	if m.Kind == KindFailed && m.Failure == nil {
		return m, fmt.Errorf("%w: a failure without a reason", ErrLink)
	}
	return m, nil
}

// Close closes this end.
func (l *Link) Close() error { return l.conn.Close() }
