package bench

import (
	"encoding/binary"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// account holds what a worker uses while it measures.
type account struct {
	started time.Time
	used    unix.Rusage
	memory  runtime.MemStats
	cycles  *os.File // counter of the processor; nil if there is none
	before  uint64
}

// startAccount begins to count. The caller is locked to its thread.
func startAccount() *account {
	a := &account{cycles: openCycles()}
	runtime.ReadMemStats(&a.memory)
	a.used = usage()
	a.before = a.readCycles()
	a.started = time.Now()
	return a
}

// end adds what was used to s.
func (a *account) end(s *Side) {
	s.Elapsed = time.Since(a.started)
	if cycles := a.readCycles(); cycles > a.before {
		s.Cycles = cycles - a.before
	}
	now := usage()
	s.CPU = processorTime(&now) - processorTime(&a.used)
	s.Switches = uint64(now.Nivcsw - a.used.Nivcsw)
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	s.Mallocs = m.Mallocs - a.memory.Mallocs
	s.Collections = uint64(m.NumGC - a.memory.NumGC)
	if a.cycles != nil {
		_ = a.cycles.Close()
	}
}

// usage returns what this process has used so far; nothing where the kernel does not tell.
func usage() (u unix.Rusage) {
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return u
}

// processTime is the processor time that this process has used.
func processTime() time.Duration {
	u := usage()
	return processorTime(&u)
}

// processorTime is the time in user mode and in the kernel.
func processorTime(u *unix.Rusage) time.Duration {
	return time.Duration(unix.TimevalToNsec(u.Utime) + unix.TimevalToNsec(u.Stime))
}

// openCycles opens the processor's cycle counter for this thread
// (perf_event_open(2)); nil where the machine or its settings do not allow it.
func openCycles() *os.File {
	attr := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_HARDWARE, Config: unix.PERF_COUNT_HW_CPU_CYCLES, Size: unix.PERF_ATTR_SIZE_VER0,
		Bits: unix.PerfBitExcludeHv,
	}
	fd, err := unix.PerfEventOpen(&attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return nil
	}
	return os.NewFile(uintptr(fd), "cycles")
}

func (a *account) readCycles() uint64 {
	if a.cycles == nil {
		return 0
	}
	var b [8]byte
	if n, err := a.cycles.Read(b[:]); err != nil || n != len(b) {
		return 0
	}
	return binary.NativeEndian.Uint64(b[:])
}
