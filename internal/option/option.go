// Package option has the errors of flags and arguments that cannot be used.
package option

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
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

// InAddress writes an address as the value of an option in another one.
func InAddress(address string) string { return inAddress.Replace(address) }

var inAddress = strings.NewReplacer("%", "%25", "?", "%3F", "&", "%26", "+", "%2B", ";", "%3B")

// Mark says of err that the command line cannot be used. What it returns matches
// ErrBad and err, and has one line: cobra puts its suggestions on lines of their own.
func Mark(err error) error { return &marked{err} }

// Errorf is Mark(fmt.Errorf(format, a...)).
func Errorf(format string, a ...any) error { return Mark(fmt.Errorf(format, a...)) }

type marked struct{ err error }

func (e *marked) Error() string   { return strings.Join(strings.Fields(e.err.Error()), " ") }
func (e *marked) Unwrap() []error { return []error{ErrBad, e.err} }
