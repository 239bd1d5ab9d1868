package shell

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// leastAddressSpace is the limit of address space (ulimit -v) below which the Go
// runtime may end the process with a dump of its threads, at any moment. It reserves
// about 0.6 GB, uses a part of what is left in steps of 64 MB, and C libraries
// reserve more for each thread. Limits below about 1.3 GB stop the runtime before
// any of our code runs.
const leastAddressSpace = 2 << 30

// checkLimits fails if the process may not have what the Go runtime needs, which
// would otherwise end it by a dump of all goroutines.
func checkLimits() error {
	var space unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_AS, &space); err == nil && space.Cur < leastAddressSpace {
		return fmt.Errorf("the limit of address space is %d MiB, and %d MiB are needed, most of it reserved and never used: raise it with ulimit -v",
			space.Cur>>20, leastAddressSpace>>20)
	}
	return nil
}

// limitHint says how to raise the limit of this process that has caused an error; empty
// if none has.
func limitHint(err error) string {
	hint := func(resource int, what, flag string) string {
		var l unix.Rlimit
		if unix.Getrlimit(resource, &l) != nil || l.Cur == unix.RLIM_INFINITY {
			return ""
		}
		return fmt.Sprintf(" (the limit of %s is %d; ulimit %s raises it)", what, l.Cur, flag)
	}
	switch {
	case errors.Is(err, unix.EMFILE):
		return hint(unix.RLIMIT_NOFILE, "open files", "-n")
	case errors.Is(err, unix.EFBIG):
		return hint(unix.RLIMIT_FSIZE, "a file's size in bytes", "-f")
	case errors.Is(err, unix.ENOMEM):
		return hint(unix.RLIMIT_AS, "address space in bytes", "-v")
	}
	return ""
}
