package cli

import (
	"errors"
	"io"
	"sync/atomic"
	"syscall"
)

// results is stdout. It knows whether a command has written anything there, and
// ends the command once nobody reads it any more.
type results struct {
	io.Writer
	used, unread atomic.Bool
	// end ends the command.
	end func()
}

func (r *results) Write(b []byte) (int, error) {
	n, err := r.Writer.Write(b)
	if n > 0 {
		r.used.Store(true)
	}
	if errors.Is(err, syscall.EPIPE) {
		r.unread.Store(true)
		r.end()
	}
	return n, err
}

// errorReport is what a command that fails prints with --json, unless it has
// printed its own object.
type errorReport struct {
	Error    string `json:"error"`
	ExitCode int    `json:"exit_code"`
}
