package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/passedfd"
	"github.com/trapeze-nic/trapeze/internal/unixsocket"
)

// ErrNoAnswer: a process has nothing to say to a command. It does not know it, or its NIC does
// not answer.
var ErrNoAnswer = errors.New("no answer")

// errProtocol: what came is no answer of a telemetry socket.
var errProtocol = errors.New("not an answer of a telemetry socket")

const (
	// maxAnswer bounds what a client takes of others than us.
	maxAnswer = 1 << 20
	// askTimeout bounds the time for an answer: that of a slow device, and some more.
	askTimeout = runTimeout + time.Second
)

// Unresponsive says that a process has a telemetry socket and does not answer there in time. PID is that
// of the process as the kernel knows it, 0 if too many wait already to connect; Program is its name
// in the kernel, made printable.
type Unresponsive struct {
	PID     int    `json:"pid"`
	Program string `json:"program"`
	Socket  string `json:"socket"`
	cause   error
}

func (s *Unresponsive) Error() string {
	return fmt.Sprintf("process %d (%s) does not answer at %s: it is stopped, or waits for its device", s.PID, s.Program, s.Socket)
}

// Unwrap returns the error of the connection.
func (s *Unresponsive) Unwrap() error { return s.cause }

// Client asks a process. One goroutine uses it at a time.
type Client struct {
	conn *unixsocket.Conn
	// Path is that of the socket.
	Path string
	// Version, Program and PID come from the process itself, made printable; UID is that
	// of its owner as the kernel knows it.
	Version, Program string
	PID              int
	UID              uint32

	answer []byte
}

// Dial connects with the process behind a socket. Its errors are those of the connection, *Unresponsive
// among them, or say that what answers is no telemetry socket.
func Dial(ctx context.Context, path string) (*Client, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unixpacket", path)
	if errors.Is(err, unix.EAGAIN) { // as many wait to be accepted as the kernel lets wait
		return nil, &Unresponsive{Socket: path, cause: err}
	}
	if err != nil {
		return nil, err
	}
	c := &Client{conn: unixsocket.NewConn(conn.(*net.UnixConn)), Path: path, answer: make([]byte, maxInput+1)}
	if err := c.greet(ctx); err != nil {
		return nil, c.end(ctx, err)
	}
	return c, nil
}

// end closes the connection after an error, for a late answer would be taken for that to the next
// question. What it returns says who is unresponsive.
func (c *Client) end(ctx context.Context, err error) error {
	_ = c.Close()
	if errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(ctx.Err(), context.Canceled) {
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", c.PID)) // not cmdline, for which the process's memory is locked
		return &Unresponsive{c.PID, Printable(strings.TrimSuffix(string(name), "\n")), c.Path, err}
	}
	return err
}

// greet takes the greeting.
func (c *Client) greet(ctx context.Context) error {
	who, err := unixsocket.Peer(c.conn.UnixConn)
	if err != nil {
		return err
	}
	c.PID, c.UID = int(who.Pid), who.Uid
	packet, fds, err := c.read(ctx)
	if err = errors.Join(err, passedfd.Close(fds...)); err != nil {
		return err
	}
	var g greeting
	if json.Unmarshal(packet, &g) != nil || g.MaxOutput < 1 || g.MaxOutput > maxAnswer {
		return fmt.Errorf("%s: greeting: %w", c.Path, errProtocol)
	}
	c.Version, c.Program = Printable(g.Version), Printable(g.Program)
	if c.PID == 0 { // it is in another namespace
		c.PID = g.PID
	}
	c.answer = make([]byte, g.MaxOutput+1)
	return nil
}

// read takes a packet, which is valid until the next one, and the descriptors that come with it.
func (c *Client) read(ctx context.Context) (packet []byte, fds []int, err error) {
	deadline, _ := ctx.Deadline()
	n, fds, _, err := c.conn.Receive(c.answer, deadline)
	if err == nil && n == 0 {
		err = io.EOF
	}
	if err != nil {
		return nil, fds, fmt.Errorf("%s: %w", c.Path, errors.Join(ctx.Err(), err))
	}
	if n == len(c.answer) {
		return nil, fds, fmt.Errorf("%s: a packet of more than %d bytes: %w", c.Path, n-1, errProtocol)
	}
	return c.answer[:n], fds, nil
}

// Ask sends a command such as "/ethdev/info,0" and decodes the answer. It fails with
// ErrNoAnswer, with errors of the connection, which ends with them, *Unresponsive among them, and if the
// answer is none.
func (c *Client) Ask(ctx context.Context, command string, into any) error {
	fds, err := c.ask(ctx, command, into)
	return errors.Join(err, passedfd.Close(fds...))
}

// maxLoan bounds the memory in bytes that is mapped of a loan.
const maxLoan = 1 << 31

// Borrow is Ask for a command that answers with a Loan, and maps its memory; nil if nothing was
// lent. The process may have passed any memory, and may change what is in it at any time.
// unix.Munmap gives it back.
func (c *Client) Borrow(ctx context.Context, command string, into any) (memory []byte, err error) {
	fds, err := c.ask(ctx, command, into)
	if err == nil && len(fds) > 0 {
		if memory, err = mapLoan(fds); err != nil {
			err = fmt.Errorf("%s: %s: %w", c.Path, command, err)
		}
	}
	return memory, errors.Join(err, passedfd.Close(fds...))
}

// mapLoan maps memory that its owner cannot take away.
func mapLoan(fds []int) ([]byte, error) {
	var s unix.Stat_t
	fd := fds[0]
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if len(fds) > 1 || err != nil || seals&unix.F_SEAL_SHRINK == 0 || unix.Fstat(fd, &s) != nil || s.Size <= 0 || s.Size > maxLoan {
		return nil, fmt.Errorf("%w: what it lends is not memory of a fixed size", errProtocol)
	}
	memory, err := unix.Mmap(fd, 0, int(s.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return memory, os.NewSyscallError("mmap", err)
}

// ask is Ask that returns the descriptors that came with the answer.
func (c *Client) ask(ctx context.Context, command string, into any) (fds []int, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	deadline, _ := ctx.Deadline()
	c.conn.Continue() // an answer may have come at the end of the last one's time
	defer context.AfterFunc(ctx, func() { c.conn.Interrupt(true) })()
	if err := c.conn.Send([]byte(command), deadline); err != nil {
		return fds, c.end(ctx, fmt.Errorf("%s: %w", c.Path, err))
	}
	packet, fds, err := c.read(ctx)
	if err != nil {
		return fds, c.end(ctx, err)
	}
	name, _, _ := strings.Cut(command, ",")
	answer := valueOf(packet, name)
	if answer == nil {
		return fds, fmt.Errorf("%s: %s: %w", c.Path, command, errProtocol)
	}
	if bytes.Equal(answer, []byte("null")) {
		return fds, fmt.Errorf("%s: %s: %w", c.Path, command, ErrNoAnswer)
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fds, fmt.Errorf("%s: %s: %w: %w", c.Path, command, errProtocol, err)
	}
	return fds, nil
}

// valueOf is the value in an object with one key, nil if the packet is none. What encode has
// written is not read twice for that.
func valueOf(packet []byte, key string) []byte {
	if value, ok := bytes.CutPrefix(packet, []byte(`{"`+key+`":`)); ok && len(value) > 1 && value[len(value)-1] == '}' {
		if value = value[:len(value)-1]; value[0] == '{' || value[0] == '[' || json.Valid(value) {
			return value
		}
	}
	var answer map[string]json.RawMessage
	if json.Unmarshal(packet, &answer) != nil || len(answer) != 1 {
		return nil
	}
	return answer[key]
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.UnixConn.Close() }

// Printable replaces what would not be text on a terminal: other processes are not trusted.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 || r == '\ufffd' {
			return '?'
		}
		return r
	}, s)
}
