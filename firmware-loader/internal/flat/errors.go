package flat

import (
	"errors"
	"fmt"

	"github.com/trapeze-nic/trapeze/descriptors"
)

// Reasons why an image is refused, as errors.Is finds them.
var (
	// ErrMalformed: the bytes are no image, or one against the rules.
	ErrMalformed = errors.New("malformed image")
	// ErrDigest: the image was changed after it was made.
	ErrDigest = errors.New("wrong digest")
	// ErrABI: it was made for processors of another ABI.
	ErrABI = descriptors.ErrInvalidParameter.Finer("image for another ABI")
	// ErrDevice: it was made for another kind of NIC.
	ErrDevice = descriptors.ErrInvalidParameter.Finer("image for another device")
	// ErrSRAM: it needs more SRAM than there is.
	ErrSRAM = descriptors.ErrInvalidParameter.Finer("image needs more SRAM than there is")
)

// Error says what is wrong with an image.
type Error struct {
	Field  string // such as "header size" or "map 2 entries"
	Detail string // what it is, and what is allowed
	Reason error  // one of the above
}

func (e *Error) Error() string {
	return fmt.Sprintf("flat image: %v: %s: %s", e.Reason, e.Field, e.Detail)
}

// Unwrap returns Reason.
func (e *Error) Unwrap() error { return e.Reason }

func refuse(reason error, field, format string, args ...any) error {
	return &Error{Field: field, Detail: fmt.Sprintf(format, args...), Reason: reason}
}

func malformed(field, format string, args ...any) error {
	return refuse(ErrMalformed, field, format, args...)
}
