package sealed

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/trapeze-nic/trapeze/wire/internal/ends"
)

// KeySize is the size of a key in bytes.
const KeySize = 32

// Errors about keys, inside an *ends.Error.
var (
	// ErrKeyFormat: a key is 64 hexadecimal digits, with white space around them at
	// most.
	ErrKeyFormat = fmt.Errorf("it is not %d hexadecimal digits", 2*KeySize)
	// ErrKeyMode: others than the owner can read or write the file.
	ErrKeyMode = errors.New("others than its owner may read or write it")
	// ErrKeyFile: it is no regular file.
	ErrKeyFile = errors.New("it is not a regular file")
)

// Key is the shared key of both ends of a wire. It prints as nothing.
type Key struct{ secret [KeySize]byte }

// String does not show the key.
func (*Key) String() string { return "key" }

// GoString does not show the key either.
func (*Key) GoString() string { return "key" }

// ParseKey reads 64 hexadecimal digits. Errors are ErrKeyFormat.
func ParseKey(text []byte) (*Key, error) {
	var k Key
	text = bytes.TrimSpace(text)
	if len(text) != 2*KeySize {
		return nil, ErrKeyFormat
	}
	if _, err := hex.Decode(k.secret[:], text); err != nil {
		return nil, ErrKeyFormat // the error of hex shows a part of the key
	}
	return &k, nil
}

// ReadKey reads a key from a file that only its owner may read. Errors are
// *ends.Error, which does not show what is in the file.
func ReadKey(file string) (*Key, error) {
	const how = "make one with: (umask 077; openssl rand -hex 32 > FILE)"
	fail := func(err error, hint string) (*Key, error) {
		return nil, &ends.Error{Op: "key file", Device: file, Err: err, Hint: hint}
	}
	// Opening a pipe waits for who writes to it, but not with O_NONBLOCK.
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		if e, ok := errors.AsType[*os.PathError](err); ok {
			err = e.Err
		}
		return fail(err, how)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return fail(err, "")
	case !info.Mode().IsRegular():
		return fail(ErrKeyFile, "")
	case info.Mode().Perm()&0o077 != 0:
		return fail(ErrKeyMode, "chmod 600 "+file)
	}
	text, err := io.ReadAll(io.LimitReader(f, 1<<10))
	if err != nil {
		return fail(err, "")
	}
	k, err := ParseKey(text)
	if err != nil {
		return fail(err, how)
	}
	return k, nil
}
