package protocol

import (
	"encoding/binary"
	"fmt"
	"syscall"
)

// HeaderSize is the size of the header that begins each message, in bytes.
const HeaderSize = 16

// order is the byte order of all numbers: that of the machine.
var order = binary.NativeEndian

// Flags of a header.
type Flags uint32

const (
	// FlagTypeMask covers the type of a message: a command, which is zero, or
	// FlagReply.
	FlagTypeMask Flags = 0xf
	FlagReply    Flags = 0x1
	// FlagNoReply in a command: the sender expects no reply.
	FlagNoReply Flags = 0x10
	// FlagError in a reply: the command failed with Header.Errno.
	FlagError Flags = 0x20
)

// MaxErrno is the largest error number that peers accept.
const MaxErrno = 4095

// Header begins each message. Its fields follow each other there in their order.
type Header struct {
	// ID is chosen by the sender of a command; the reply repeats it.
	ID      uint16
	Command Command
	// Size of the message in bytes, header included.
	Size  uint32
	Flags Flags
	// Errno is the error of a reply with FlagError.
	Errno uint32
}

// Append appends the header to b.
func (h Header) Append(b []byte) []byte { return encode(b, h) }

// DecodeHeader reads a header. It fails with an *Error if the message has no
// header's size or is of no known type, and then returns the header all the
// same, for the reply.
func DecodeHeader(b *[HeaderSize]byte) (Header, error) {
	var h Header
	_, _ = binary.Decode(b[:], order, &h) // all of it is there
	return h, h.check()
}

func (h Header) check() error {
	bad := func(field string, value uint64, why string) error {
		return &Error{Message: "header", Field: field, Value: value, Why: why, Errno: syscall.EINVAL}
	}
	switch {
	case h.Size < HeaderSize:
		return bad("size", uint64(h.Size), fmt.Sprintf("want at least %#x", HeaderSize))
	case h.Flags&FlagTypeMask > FlagReply:
		return bad("flags", uint64(h.Flags), "there is no such type of message")
	case h.Flags&^(FlagTypeMask|FlagNoReply|FlagError) != 0:
		return bad("flags", uint64(h.Flags), "bits 6 to 31 are reserved")
	case !h.IsReply() && h.Flags&FlagError != 0:
		return bad("flags", uint64(h.Flags), "a command has no error")
	case h.IsReply() && h.Flags&FlagNoReply != 0:
		return bad("flags", uint64(h.Flags), "a reply has no reply")
	}
	return nil
}

// IsReply reports whether the message is a reply.
func (h Header) IsReply() bool { return h.Flags&FlagTypeMask == FlagReply }

// WantsReply reports whether the message is a command to be replied to.
func (h Header) WantsReply() bool { return !h.IsReply() && h.Flags&FlagNoReply == 0 }

// Failure returns the error that a reply tells of, nil if none. A number that
// is no errno counts as EINVAL.
func (h Header) Failure() error {
	switch {
	case h.Flags&FlagError == 0:
		return nil
	case h.Errno == 0 || h.Errno > MaxErrno:
		return syscall.EINVAL
	}
	return syscall.Errno(h.Errno)
}
