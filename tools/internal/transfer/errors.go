package transfer

import (
	"errors"
	"fmt"
	"io"

	"github.com/trapeze-nic/trapeze/via"
)

// Errors of a transfer, to be found with errors.Is.
var (
	// ErrProtocol: the other side sent what the protocol does not allow.
	ErrProtocol = errors.New("the other side does not keep to the transfer protocol")
	// ErrPeerLost: the connection has ended, in whatever way; see Lost.
	ErrPeerLost = errors.New("the other side is gone")
	// ErrDigest: what arrived is not what was sent.
	ErrDigest = errors.New("SHA-256 of what arrived differs from what was sent")
	// ErrSize: the file's length is not what the offer said.
	ErrSize = errors.New("the file's length differs from what was offered")
	// ErrSource: reading the file to be sent failed.
	ErrSource = errors.New("reading failed")
	// ErrSink: storing what arrived failed.
	ErrSink = errors.New("writing failed")
	// ErrExists: the receiver will not replace a file. Sinks wrap it.
	ErrExists = errors.New("output exists")
)

// PeerLost reports whether err, of a connection, says that the other side is gone, in
// whatever way.
func PeerLost(err error) bool { return errors.Is(Lost(err), ErrPeerLost) }

// Lost makes an ErrPeerLost of an error of a connection that says so, together with
// the way, and returns others as they are.
func Lost(err error) error {
	if err == nil || errors.Is(err, ErrPeerLost) {
		return err
	}
	for _, way := range []error{via.ErrPathMTU, via.ErrDisconnected, via.ErrPeerLost, via.ErrConnectionBroken, via.ErrDescriptor} {
		if errors.Is(err, way) {
			return fmt.Errorf("%w: %w", ErrPeerLost, way) // a path that is too small is said first
		}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: %w", ErrPeerLost, via.ErrDisconnected)
	}
	return err
}

// malformed makes an error that wraps ErrProtocol.
func malformed(format string, a ...any) error {
	return fmt.Errorf("%w: %s", ErrProtocol, fmt.Sprintf(format, a...))
}

// Reason says why a side ended a transfer, in words for the other side's user.
type Reason string

// ReasonInterrupted: the other side's user stopped it, or none of the reasons below fits.
const ReasonInterrupted Reason = "interrupted"

// reasons of failures. An error has one of them at most.
var reasons = map[error]Reason{
	ErrExists:   "its output exists already",
	ErrSource:   "it cannot read the file",
	ErrSink:     "it cannot write the file",
	ErrSize:     "the file's length is not the one offered",
	ErrDigest:   "the SHA-256 of what arrived differs",
	ErrProtocol: "protocol error",
}

// reasonOf chooses what to tell the other side about err.
func reasonOf(err error) Reason {
	for is, reason := range reasons {
		if errors.Is(err, is) {
			return reason
		}
	}
	return ReasonInterrupted
}

// RemoteError is the error of the side that was told to stop.
type RemoteError struct {
	Reason Reason
	Text   string // details in the other side's words; may be empty
}

func (e *RemoteError) Error() string {
	s := "the other side ended the transfer: " + string(e.Reason)
	if e.Text != "" {
		s += ": " + e.Text
	}
	return s
}

// Is makes a RemoteError match the sentinel that the other side met.
func (e *RemoteError) Is(target error) bool {
	for is, reason := range reasons {
		if is == target {
			return reason == e.Reason
		}
	}
	return false
}
