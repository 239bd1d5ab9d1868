// Package buserror contains accesses to memory that another process shares.
//
// Such memory is a mapped file, and a holder of the file can cut it off:
// touching a page behind its end is a bus error (SIGBUS), which ends a Go
// program. The same happens if the file has a hole and the system has no memory
// left to fill it.
package buserror

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// ErrVanished is wrapped by the errors of Catch.
var ErrVanished = errors.New("shared memory is not there any more")

// Error says which access failed.
type Error struct {
	// Address is the virtual address that was touched.
	Address uint64
}

func (e *Error) Error() string { return fmt.Sprintf("%v: bus error at %#x", ErrVanished, e.Address) }

// Unwrap returns ErrVanished.
func (e *Error) Unwrap() error { return ErrVanished }

// Catch runs f. An access to unmapped or vanished memory ends f, as a panic
// does: deferred calls run, and Catch returns an *Error. What f was working on
// is half done then, so the caller puts it into a known state.
//
// It is for the goroutine that calls it, not for goroutines that f starts. A
// program's own mistakes, nil pointers among them, are panics as ever. Catch
// costs some nanoseconds and allocates nothing.
func Catch(f func()) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch r := recover().(type) {
		case nil:
		case interface{ Addr() uintptr }:
			// Only faults know an address; the runtime makes no such panic for
			// the page at address zero.
			err = &Error{uint64(r.Addr())}
		default:
			panic(r)
		}
	}()
	f()
	return nil
}
