package bench

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// account holds what a worker had used when it began to measure.
type account struct {
	started time.Time
	before  Side
}

func startAccount() *account {
	before := used()
	return &account{time.Now(), before}
}

// end adds to s what was used since.
func (a *account) end(s *Side) {
	s.Elapsed = time.Since(a.started)
	now := used()
	s.CPU, s.Switches = now.CPU-a.before.CPU, now.Switches-a.before.Switches
	s.Mallocs, s.Collections = now.Mallocs-a.before.Mallocs, now.Collections-a.before.Collections
}

// used returns what this process has used so far.
func used() Side {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u) // what the kernel does not tell is zero
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return Side{CPU: time.Duration(unix.TimevalToNsec(u.Utime) + unix.TimevalToNsec(u.Stime)), Switches: uint64(u.Nivcsw),
		Mallocs: m.Mallocs, Collections: uint64(m.NumGC)}
}
