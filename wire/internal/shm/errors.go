package shm

import (
	"errors"
	"time"

	"github.com/trapeze-nic/trapeze/wire/internal/line"
)

// What errors of this package wrap, besides ends.ErrOptions and errnos.
var (
	// ErrBusy: the listener has a peer already.
	ErrBusy = errors.New("both ends of this wire have been taken")
	// ErrVersion: the two sides speak no version in common.
	ErrVersion = errors.New("no common version of the protocol")
	// ErrPeer is wrapped by every PeerError.
	ErrPeer = line.ErrPeer
	// ErrStuck: the peer has taken no frames, or not ended one, for so long that
	// what is under way cannot be told to have arrived.
	ErrStuck = errors.New("the peer does not take part")
	// ErrNotShared: Options.Share is off.
	ErrNotShared = errors.New("sharing memory is not switched on")
	// ErrNotExported: no memory has been exported under this number.
	ErrNotExported = errors.New("no such exported memory")
	// ErrMemory: memory that cannot be exported, or a file that cannot be mapped.
	ErrMemory = errors.New("memory cannot be shared")
)

// PeerError says which rule the peer broke. It wraps ErrPeer.
type PeerError = line.PeerError

func broken(field string, value uint64, want string) *PeerError {
	return &PeerError{Field: field, Value: value, Want: want}
}

// How long things may take.
const (
	// greetTime bounds each step of a connection's set-up.
	greetTime = 2 * time.Second
	// sendTime bounds the sending of a message to a peer that does not read.
	sendTime = time.Second
	// answerTime bounds the wait for an answer of a connected peer.
	answerTime = 3 * time.Second
	// plugTime bounds the wait for a peer to hear of our plug.
	plugTime = time.Second
	// lendTime is the time that the peer's wish for its memory back may wait for
	// the goroutine that reads it. It is shorter than the peer's timeout.
	lendTime = 2 * time.Second
	// busyTime is the time that New tries again at a listener that has a peer: one
	// that has just died may not have been noticed yet.
	busyTime = 500 * time.Millisecond
	// firstRetry and lastRetry bound the pause before the next attempt to
	// connect. It doubles from one to the next.
	firstRetry = 10 * time.Millisecond
	lastRetry  = time.Second
)
