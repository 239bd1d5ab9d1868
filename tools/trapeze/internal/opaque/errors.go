package opaque

import (
	"errors"
	"fmt"
)

// Reasons why a manifest is refused, as errors.Is finds them.
var (
	// ErrSyntax: it is not TOML, or a value has the wrong type.
	ErrSyntax = errors.New("is not TOML that we can read")
	// ErrUnknownKey: a key that manifests do not have.
	ErrUnknownKey = errors.New("unknown key")
	// ErrMissing: a key that they must have.
	ErrMissing = errors.New("missing")
	// ErrValue: a value that is out of range.
	ErrValue = errors.New("bad value")
	// ErrSegment: a segment's file cannot be read or is not the one that was
	// meant.
	ErrSegment = errors.New("bad segment")
	// ErrDevice: the image is for other NICs.
	ErrDevice = errors.New("for another device")
)

// Error says what is wrong with a manifest.
type Error struct {
	File    string // of the manifest
	Line    int    // from 1; 0 if it is about no line
	Key     string // such as "segments[2].address"; empty for the whole file
	Detail  string
	Allowed string // what would be right; empty if that is plain
	Reason  error
}

func (e *Error) Error() string {
	s := e.File
	if e.Line > 0 {
		s += fmt.Sprintf(":%d", e.Line)
	}
	if e.Key != "" {
		s += ": " + e.Key
	}
	s += ": " + e.Reason.Error()
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	if e.Allowed != "" {
		s += " (allowed: " + e.Allowed + ")"
	}
	return s
}

// Unwrap returns Reason.
func (e *Error) Unwrap() error { return e.Reason }
