package memif

import (
	"errors"
	"fmt"

	"github.com/trapeze-nic/trapeze/wire/internal/ends"
	"github.com/trapeze-nic/trapeze/wire/internal/memif/internal/protocol"
)

// Why a connection was not made, or has ended. Stats.Err wraps one of these.
var (
	// ErrRefused: the peer has ended the connection and said why, be it while
	// connecting or later.
	ErrRefused = errors.New("the peer has disconnected")
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

// refusal is an ErrNotWelcome that the client is told.
type refusal struct {
	why  string
	init protocol.Init
}

func (r *refusal) Error() string {
	return fmt.Sprintf("%v: %s (version %#x, id %d, mode %d)", ErrNotWelcome, r.why, r.init.Version, r.init.ID, r.init.Mode)
}

func (r *refusal) Unwrap() error { return ErrNotWelcome }

// fail makes the error of a step. The peer is its own name for itself, empty if it has
// not said.
func (p *Port) fail(op, peer string, err error, hint string) *ends.Error {
	port := fmt.Sprintf("memif %s of %s, id %d", p.options.Role, p.options.Socket, p.options.ID)
	if peer != "" {
		port += fmt.Sprintf(", peer %q", peer)
	}
	return &ends.Error{Op: op, Device: port, Err: err, Hint: hint}
}
