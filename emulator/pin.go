package emulator

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// usableCores returns the processor cores that this process may use, in order.
func usableCores() (cores []int) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil
	}
	for i := 0; len(cores) < set.Count(); i++ {
		if set.IsSet(i) {
			cores = append(cores, i)
		}
	}
	return cores
}

// pinThread ties the goroutine to its thread and the thread to a core. The runtime
// ends the thread with the goroutine, or never uses it again, so that no other goroutine
// gets one that is pinned.
func pinThread(core int) error {
	runtime.LockOSThread()
	var set unix.CPUSet
	set.Set(core)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("%w: core %d: %w", ErrOptions, core, err)
	}
	return nil
}
