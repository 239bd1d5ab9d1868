// Package bounded reads files that another user may have put there.
package bounded

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// Errors of Read and ReadFile, besides those of the file system.
var (
	ErrNotRegular = errors.New("not a regular file")
	ErrTooLarge   = errors.New("too large")
)

// Flags to open a file with: without O_NONBLOCK, opening a pipe waits for its
// writer.
const Flags = os.O_RDONLY | syscall.O_NONBLOCK

// ReadFile reads a regular file of at most limit bytes.
func ReadFile(name string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(name, Flags, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Read(f, name, limit)
}

// Read reads an open file, which errors call name.
func Read(f fs.File, name string, limit int64) ([]byte, error) {
	switch st, err := f.Stat(); {
	case err != nil:
		return nil, err
	case !st.Mode().IsRegular():
		return nil, &fs.PathError{Op: "read", Path: name, Err: ErrNotRegular}
	}
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return nil, &fs.PathError{Op: "read", Path: name, Err: fmt.Errorf("%w: more than %d bytes", ErrTooLarge, limit)}
	}
	return b, nil
}
