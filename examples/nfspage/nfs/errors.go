package nfs

import (
	"errors"
	"fmt"
)

// Why a packet is not re-ordered, inside an *Error.
var (
	// ErrShort: the packet, or a part of it, ends within a field.
	ErrShort = errors.New("ends within the field")
	// ErrLength: a length is greater than the protocol has it, or contradicts another one.
	ErrLength = errors.New("length is wrong")
	// ErrOther: the packet is sound, for all that is known, but carries no data that could
	// be placed: another procedure, a call that failed, fragments, options. Send it as it is.
	ErrOther = errors.New("not a packet to re-order")
)

// Error names the field that is in the way.
type Error struct {
	Field string
	Value uint64
	Err   error
}

func (e *Error) Error() string { return fmt.Sprintf("NFS packet: %s %d: %v", e.Field, e.Value, e.Err) }

func (e *Error) Unwrap() error { return e.Err }
