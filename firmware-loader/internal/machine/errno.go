package machine

import "golang.org/x/sys/unix"

// Errno is why a map operation failed: the error number that the Linux kernel has
// for the same operation. Programs see it negated. Zero is success and not an error.
type Errno uint32

// Errors of map operations.
const (
	// ErrNoKey: the key is not in the map.
	ErrNoKey = Errno(unix.ENOENT)
	// ErrKeyExists: the key is there, and was only to be inserted.
	ErrKeyExists = Errno(unix.EEXIST)
	// ErrFull: the map has no room, or an array no such entry.
	ErrFull = Errno(unix.E2BIG)
	// ErrInvalid: unknown flags, or an entry of an array was to be deleted.
	ErrInvalid = Errno(unix.EINVAL)
	// ErrReadOnly: the map is read-only.
	ErrReadOnly = Errno(unix.EPERM)
)

func (e Errno) Error() string { return unix.Errno(e).Error() }
