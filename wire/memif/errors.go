package memif

import (
	"errors"
	"fmt"
)

// Why a connection was not made, or has ended. Stats.Err wraps one of these.
var (
	// ErrNobody: no server listens at the socket.
	ErrNobody = errors.New("nobody listens at the socket")
	// ErrRefused: the peer has ended the connection and said why, be it while
	// connecting or later.
	ErrRefused = errors.New("the peer has disconnected")
	// ErrGone: the peer's end of the socket is closed, as when it has died.
	ErrGone = errors.New("the peer has gone")
	// ErrTimeout: the peer took too long for a step of connecting.
	ErrTimeout = errors.New("the peer does not answer")
	// ErrMessage: the peer has sent a control message that makes no sense.
	ErrMessage = errors.New("bad control message")
	// ErrNotWelcome: the peer speaks another version, wants another mode, or an
	// interface that is not here or is taken, or does not know the secret.
	ErrNotWelcome = errors.New("peer not accepted")
	// ErrMemory: the memory that the peer brought cannot be used, or what was
	// in use has vanished.
	ErrMemory = errors.New("bad shared memory")
	// ErrViolation: the peer has written something into a ring that makes no
	// sense, and this wraps a *ring.Violation; or it keeps us waiting.
	ErrViolation = errors.New("rings were violated")
	// ErrUnplugged: SetLink or Close has ended it.
	ErrUnplugged = errors.New("unplugged")
)

// Error is about a connection.
type Error struct {
	// Op is what was under way: "listen", "connect", "accept" or "transfer".
	Op string
	// Socket, Role and ID are those of the port.
	Socket string
	Role   Role
	ID     uint32
	// Peer is what the peer calls itself; empty if it has not said.
	Peer string
	Err  error
	// Hint says what may be done about it; it may be empty.
	Hint string
}

func (e *Error) Error() string {
	of := ""
	if e.Peer != "" {
		of = fmt.Sprintf(", peer %q", e.Peer)
	}
	s := fmt.Sprintf("memif %s: %s of %s, id %d%s: %v", e.Op, e.Role, e.Socket, e.ID, of, e.Err)
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

func (p *Port) fail(op, peer string, err error, hint string) *Error {
	return &Error{Op: op, Socket: p.options.Socket, Role: p.options.Role, ID: p.options.ID, Peer: peer, Err: err, Hint: hint}
}
