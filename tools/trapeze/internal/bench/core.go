package bench

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// ErrCore: a process cannot be pinned to the core that was asked for.
var ErrCore = errors.New("cannot be pinned")

// pin locks the caller to its thread, and pins the thread to core unless that is
// negative. Threads that are started later inherit the choice.
func pin(core int) error {
	runtime.LockOSThread()
	if core < 0 {
		return nil
	}
	var set unix.CPUSet
	set.Set(core)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("%w to core %d: %w", ErrCore, core, err)
	}
	return nil
}

// pinProcess pins all threads of this process, and those that they will start, to
// core unless that is negative.
func pinProcess(core int) error {
	if core < 0 {
		return nil
	}
	var set unix.CPUSet
	set.Set(core)
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, t := range tasks {
		id, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		// A thread may have ended meanwhile.
		if err := unix.SchedSetaffinity(id, &set); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("%w to core %d: %w", ErrCore, core, err)
		}
	}
	return nil
}

// Cores returns the cores that this process may use, in order.
func Cores() []int {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil
	}
	var cores []int
	for i := 0; len(cores) < set.Count(); i++ {
		if set.IsSet(i) {
			cores = append(cores, i)
		}
	}
	return cores
}

// OnCore runs f on a thread of its own, which is pinned to core unless that is
// negative. Goroutines that f starts run elsewhere.
func OnCore(core int, f func() error) error {
	ended := make(chan error, 1)
	go func() {
		// Not unlocked: the thread ends with the goroutine, and nobody inherits
		// where it may run.
		if err := pin(core); err != nil {
			ended <- err
			return
		}
		ended <- f()
	}()
	return <-ended
}
