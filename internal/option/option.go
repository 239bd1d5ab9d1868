// Package option has the errors of flags and arguments that cannot be used.
package option

import (
	"errors"
	"fmt"
	"strconv"
)

// ErrBad: a flag or argument cannot be used; scripts tell it from a failure by the
// exit code that the command ends with.
var ErrBad = errors.New("bad option")

// Error names an option and its range. It matches ErrBad.
type Error struct {
	// Option is a flag such as "--output", or what an argument is called.
	Option string
	// Value that was given, empty if there was none where there must be one.
	Value   string
	Allowed string
}

func (e *Error) Error() string {
	if e.Value == "" {
		return fmt.Sprintf("%s is required: %s", e.Option, e.Allowed)
	}
	value := e.Value
	if quoted := strconv.Quote(value); quoted != `"`+value+`"` { // it would not print
		value = quoted
	}
	return fmt.Sprintf("%s %s: %v (allowed: %s)", e.Option, value, ErrBad, e.Allowed)
}

// Unwrap returns ErrBad.
func (e *Error) Unwrap() error { return ErrBad }
