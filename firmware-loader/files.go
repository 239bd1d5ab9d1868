package firmware

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/trapeze-nic/trapeze/firmware-loader/internal/elfimage"
)

// ReadObject reads a file for Parse or Build.
func ReadObject(name string) ([]byte, error) { return readFile(name, elfimage.MaxFile) }

// Open reads and parses an image. Errors name the file and wrap those of Parse.
func Open(name string) (*Spec, error) {
	b, err := ReadObject(name)
	if err != nil {
		return nil, err
	}
	s, err := Parse(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return s, nil
}

// ReadPrivateKey reads a file for DecodePrivateKey.
func ReadPrivateKey(name string) (ed25519.PrivateKey, error) {
	b, err := readFile(name, maxKeyFile)
	if err != nil {
		return nil, err
	}
	key, err := DecodePrivateKey(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return key, nil
}

// Errors of files that another user may have put there.
var (
	errNotRegular = errors.New("not a regular file")
	errTooLarge   = errors.New("too large")
)

func readFile(name string, limit int64) ([]byte, error) {
	// Without O_NONBLOCK, opening a pipe waits for its writer.
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	switch st, err := f.Stat(); {
	case err != nil:
		return nil, err
	case !st.Mode().IsRegular():
		return nil, &fs.PathError{Op: "read", Path: name, Err: errNotRegular}
	}
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = &fs.PathError{Op: "read", Path: name, Err: fmt.Errorf("%w: more than %d bytes", errTooLarge, limit)}
	}
	return b, err
}
