package line

import (
	"errors"
	"fmt"
)

// ErrPeer is wrapped by every PeerError.
var ErrPeer = errors.New("the peer broke the rules of the wire")

// PeerError says which rule the peer broke. It wraps ErrPeer.
type PeerError struct {
	// Field names what was wrong, such as "length" of a frame.
	Field string
	// Value is the peer's value.
	Value uint64
	// Want says what would have been right.
	Want string
}

func (e *PeerError) Error() string {
	return fmt.Sprintf("%v: %s is %#x, want %s", ErrPeer, e.Field, e.Value, e.Want)
}

// Unwrap returns ErrPeer.
func (e *PeerError) Unwrap() error { return ErrPeer }
