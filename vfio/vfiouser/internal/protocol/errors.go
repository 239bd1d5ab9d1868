package protocol

import (
	"encoding/binary"
	"fmt"
	"syscall"
)

// Error says what is wrong with a message. The connection that it came by is
// still good.
type Error struct {
	// Message is the command's name, or "header".
	Message string
	// Field is the field's name in the specification.
	Field string
	Value uint64
	// Why says which values are right, or why this one is not.
	Why string
	// Errno is the number in an error reply.
	Errno syscall.Errno
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s: %s is %#x: %s", e.Message, e.Field, e.Value, e.Why)
}

// Unwrap returns the errno of the reply.
func (e *Error) Unwrap() error { return e.Errno }

// Invalid makes the error about a value, whose errno is EINVAL.
func Invalid[T ~int | ~uint16 | ~uint32 | ~uint64](c Command, field string, value T, format string, a ...any) *Error {
	return &Error{Message: c.String(), Field: field, Value: uint64(value), Why: fmt.Sprintf(format, a...), Errno: syscall.EINVAL}
}

// checkArgsz checks the length of a payload that starts with argsz, which is the
// room that its sender has for the reply: at least size bytes, all of which, and
// perhaps more, are there.
func checkArgsz(c Command, p []byte, size int) error {
	if len(p) < size {
		return Invalid(c, "size", HeaderSize+len(p), "want at least %#x", HeaderSize+size)
	}
	argsz := order.Uint32(p)
	if uint64(argsz) < uint64(size) {
		return Invalid(c, "argsz", argsz, "want at least %#x", size)
	}
	if uint64(argsz) < uint64(len(p)) {
		return Invalid(c, "size", HeaderSize+len(p), "argsz is only %#x", argsz)
	}
	return nil
}

// encode appends numbers, or the fields of a structure of numbers, to b.
func encode(b []byte, m any) []byte {
	b, _ = binary.Append(b, order, m) // each of them has a size
	return b
}

// decode reads a structure that starts with argsz.
func decode[T any](c Command, p []byte) (m T, err error) {
	if err = checkArgsz(c, p, binary.Size(m)); err == nil {
		_, err = binary.Decode(p, order, &m)
	}
	return m, err
}

// checkAccess checks count bytes from first on, and the data that come with them: all of them, or none.
func checkAccess(c Command, field string, first, count uint64, brings bool, data []byte) error {
	if brings && uint64(len(data)) != count || !brings && len(data) > 0 {
		return Invalid(c, "count", count, "the message has %#x bytes of data", len(data))
	}
	return checkRange(c, field, first, count)
}

// checkRange checks that size bytes from first on do not wrap.
func checkRange(c Command, field string, first, size uint64) error {
	if size > 0 && first+(size-1) < first {
		return Invalid(c, field, first, "with %#x bytes from there it wraps", size)
	}
	return nil
}
