package shell

import (
	"errors"
	"io"
	"sync"
	"syscall"

	"github.com/trapeze-nic/trapeze/internal/command"
)

// results is stdout. It knows how writing there went, and ends the command once
// its reader has closed it.
type results struct {
	io.Writer
	// end ends the command.
	end func()

	mu   sync.Mutex
	used bool
	err  error // the first one
}

func (r *results) Write(b []byte) (int, error) {
	n, err := r.Writer.Write(b)
	r.mu.Lock()
	r.used = r.used || n > 0
	if r.err == nil {
		r.err = err
	}
	r.mu.Unlock()
	if errors.Is(err, syscall.EPIPE) {
		r.end()
	}
	return n, err
}

// printable is stdout for text.
type printable struct{ *results }

func (p printable) Write(b []byte) (int, error) {
	if _, err := io.WriteString(p.results, command.Printable(string(b))); err != nil {
		return 0, err
	}
	return len(b), nil
}

// outcome reports whether anything was written, and the first error of it.
func (r *results) outcome() (used bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.used, r.err
}

// errorReport is the JSON of a command that fails, unless it has printed an object
// of its own.
type errorReport struct {
	Error    string `json:"error"`
	ExitCode int    `json:"exit_code"`
}
