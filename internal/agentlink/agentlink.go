// Package agentlink has what programs and the agent of their host say to each other (docs/agent.md).
//
// They meet at a UNIX stream socket. Each message is a length of 4 bytes, big-endian, and JSON of
// that length. A message may pass one descriptor (SCM_RIGHTS, unix(7)), and more of them between an
// agent and the one that takes its place.
package agentlink

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/passedfd"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
	"github.com/trapeze-nic/trapeze/internal/unixsocket"
)

// DefaultSocket is where the agent of a host listens.
const DefaultSocket = "/run/trapeze/agent.sock"

// Variable is the environment variable with the path of another socket.
const Variable = "TRAPEZE_AGENT"

// Version is that of the messages. Either side refuses another one.
const Version = 1

const (
	// maxMessage bounds a message in bytes: a list of some thousand clients.
	maxMessage = 1 << 20
	// sendTime bounds how long a peer may leave a message unread.
	sendTime = 2 * time.Second
)

// Kinds of messages. A program begins with Open or List.
const (
	Open    = "open"    // give me a NIC
	List    = "list"    // who has which NIC
	Welcome = "welcome" // the NIC, with the wire to the agent
	Peer    = "peer"    // another client, with the wire to it
	Refuse  = "refuse"  // no, and why
)

// Kinds of messages between an agent and one that takes its place, in this order.
const (
	Replace = "replace" // give me all that you have.
	State   = "state"   // what it is, with the socket that listens
	Lent    = "lent"    // a client, with its descriptors.
	Checked = "checked" // all of it can be used
	Closed  = "closed"  // the ports of the NICs are closed.
	Opened  = "opened"  // they are open again
	Over    = "over"    // all of it is yours.
	Serving = "serving" // it is
)

// MaxPassed bounds the descriptors that a message between agents passes.
const MaxPassed = 5

// Message is one of any kind. Fields that its kind does not have are zero.
type Message struct {
	Kind    string `json:"kind"`
	Version int    `json:"version,omitempty"`

	// Of Open: what is wanted. Of Welcome: what is granted.
	NIC      string `json:"nic,omitempty"`
	Station  string `json:"station,omitempty"` // also of Peer: whose wire it is
	MTU      int    `json:"mtu,omitempty"`     // bytes, with the Ethernet header
	VIs      uint32 `json:"vis,omitempty"`
	Memory   uint64 `json:"memory,omitempty"` // bytes that may be registered; 0: no limit
	Checksum bool   `json:"checksum,omitempty"`
	Program  string `json:"program,omitempty"`
	// Peers counts the messages of kind Peer that follow a Welcome at once.
	Peers int `json:"peers,omitempty"`

	// Listen says that the receiver of Peer makes the memory of the wire.
	Listen bool `json:"listen,omitempty"`

	// Of Refuse.
	Why   string `json:"why,omitempty"`
	Errno uint32 `json:"errno,omitempty"`

	// Of State and Lent, in the form that the agent gives it.
	State json.RawMessage `json:"state,omitempty"`

	// Of the answer to List.
	NICs    []NIC    `json:"nics,omitempty"`
	Clients []Client `json:"clients,omitempty"`
}

// Client is a NIC that a program has from the agent.
type Client struct {
	NIC     string `json:"nic"`
	Station string `json:"station"`
	PID     int32  `json:"pid"`
	UID     uint32 `json:"uid"`
	Program string `json:"program"`
	Grant   string `json:"grant"`
	VIs     uint32 `json:"vis"`
	Direct  int    `json:"direct"` // clients with which it shares memory
	ClientStats
}

// NIC is one that the agent owns.
type NIC struct {
	Name string `json:"name"`
	// State is Up, or Down if its link is, or Lost if it has failed: the agent then tries to open it again.
	State string `json:"state" help:"up, down: without a link, lost: it has failed and is being opened again"`
}

// The states of a NIC.
const (
	Up   = "up"
	Down = "down"
	Lost = "lost"
)

// ClientStats counts what the agent has done for a client.
type ClientStats struct {
	Frames  uint64 `json:"frames"`
	Bytes   uint64 `json:"bytes"`
	Arrived uint64 `json:"arrived"` // frames to it
	Dropped uint64 `json:"dropped"` // frames to it that it had no room for
	Lost    uint64 `json:"lost"`    // frames of it to no station
	Forged  uint64 `json:"forged"`  // frames of it with the address of another
	Refused uint64 `json:"refused"` // frames of it that its grant does not allow
	Slowed  uint64 `json:"slowed"`  // times that its rate was used up
}

// ErrMessage is wrapped by errors about bytes that are no message.
var ErrMessage = errors.New("not a message of an agent")

// RefusedError is an answer of the agent that is no.
type RefusedError struct {
	Why   string
	Errno unix.Errno
}

func (e *RefusedError) Error() string { return "the agent refuses: " + telemetry.Printable(e.Why) }

// Unwrap returns the errno.
func (e *RefusedError) Unwrap() error { return e.Errno }

// Socket is the path at which the agent is expected.
func Socket() string {
	if path := os.Getenv(Variable); path != "" {
		return path
	}
	return DefaultSocket
}

// Conn carries messages. One goroutine may send while another receives.
type Conn struct{ *unixsocket.Conn }

// New makes one of a connection, which it owns.
func New(c *net.UnixConn) *Conn { return &Conn{unixsocket.NewConn(c)} }

// Interrupt has Send and Receive fail with os.ErrDeadlineExceeded from now on, until Continue.
func (c *Conn) Interrupt() { c.Conn.Interrupt(true) }

// Send sends a message, with descriptors unless they are negative.
func (c *Conn) Send(m Message, fds ...int) error {
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(body) > maxMessage {
		return fmt.Errorf("%w: it has %d bytes, at most %d", ErrMessage, len(body), maxMessage)
	}
	packet := append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
	fds = slices.DeleteFunc(slices.Clone(fds), func(fd int) bool { return fd < 0 })
	return c.Conn.Send(packet, time.Now().Add(sendTime), fds...)
}

// Receive waits for a message until a time, or for ever if that is zero. The descriptor is the
// caller's, -1 if there is none. It fails with ErrMessage, io.EOF, or an error of the socket.
func (c *Conn) Receive(until time.Time) (m Message, fd int, err error) {
	m, fds, err := c.ReceiveMany(until, 1)
	if len(fds) == 0 {
		return m, -1, err
	}
	return m, fds[0], err
}

// ReceiveMany is Receive for a message of another agent, with up to most descriptors. If it fails it
// leaves sockets among them as they are for who has passed them.
func (c *Conn) ReceiveMany(until time.Time, most int) (m Message, fds []int, err error) {
	defer func() {
		switch {
		case err == nil:
			return
		case most == 1:
			_ = passedfd.Close(fds...)
		default:
			Drop(fds)
		}
		fds = nil
	}()
	var size [4]byte
	if err := c.read(size[:], until, &fds, most); err != nil {
		return m, fds, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n == 0 || n > maxMessage {
		return m, fds, fmt.Errorf("%w: it has %d bytes, at most %d", ErrMessage, n, maxMessage)
	}
	body := make([]byte, n)
	if err := c.read(body, until, &fds, most); err != nil {
		return m, fds, err
	}
	if err := json.Unmarshal(body, &m); err != nil {
		return m, fds, fmt.Errorf("%w: %w", ErrMessage, err)
	}
	return m, fds, nil
}

// Drop closes descriptors here, and not for a process that has passed them.
func Drop(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// read fills p, and collects descriptors.
func (c *Conn) read(p []byte, until time.Time, fds *[]int, most int) error {
	for len(p) > 0 {
		n, more, _, err := c.Conn.Receive(p, until)
		*fds = append(*fds, more...)
		switch {
		case err != nil:
			return err
		case n == 0:
			return io.EOF
		case len(*fds) > most:
			return fmt.Errorf("%w: it passes %d descriptors", ErrMessage, len(*fds))
		}
		p = p[n:]
	}
	return nil
}
