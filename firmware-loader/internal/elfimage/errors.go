package elfimage

import (
	"errors"
	"fmt"
)

// Reasons why a file is refused, as errors.Is finds them.
var (
	// ErrFormat: not a relocatable 64-bit little-endian ELF file.
	ErrFormat = errors.New("not an ELF object that we can read")
	// ErrMachine: for another processor than BPF.
	ErrMachine = errors.New("for another machine")
	// ErrTruncated: something lies outside of the file.
	ErrTruncated = errors.New("truncated")
	// ErrMalformed: the file contradicts itself or the ELF format.
	ErrMalformed = errors.New("malformed")
	// ErrLimit: something is larger than a control program may be.
	ErrLimit = errors.New("over a limit")
	// ErrUnsupported: a sound file with something that the NIC does not have.
	ErrUnsupported = errors.New("not supported")
)

// Error says what is wrong with an image.
type Error struct {
	Section string // name of the section; empty for the file as a whole
	Detail  string
	Reason  error // one of the above, or of those who read images
}

func (e *Error) Error() string {
	where := "image"
	if e.Section != "" {
		where = "section " + e.Section
	}
	return fmt.Sprintf("%s: %v: %s", where, e.Reason, e.Detail)
}

// Unwrap returns Reason.
func (e *Error) Unwrap() error { return e.Reason }

func refuse(reason error, section, format string, args ...any) error {
	return &Error{Section: section, Detail: fmt.Sprintf(format, args...), Reason: reason}
}
