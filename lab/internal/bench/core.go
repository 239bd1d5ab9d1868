package bench

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

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

// watching is for how long Quietest looks at the cores.
const watching = 100 * time.Millisecond

// Quietest returns n of the cores that this process may use, in order: those that
// others use least now. Nil if it may use fewer.
func Quietest(n int) []int {
	have := Cores()
	if len(have) <= n {
		if len(have) < n {
			return nil
		}
		return have
	}
	before := idleTicks()
	time.Sleep(watching)
	return quietest(have, before, idleTicks(), n)
}

// quietest picks n cores by how much more idle time each has after than before. Those
// with at least nine tenths of the most are alike: the first ones are taken.
func quietest(have []int, before, after map[int]uint64, n int) []int {
	idle := map[int]uint64{}
	most := uint64(0)
	for _, c := range have {
		if after[c] > before[c] {
			idle[c] = after[c] - before[c]
		}
		most = max(most, idle[c])
	}
	for c, n := range idle {
		if 10*n >= 9*most {
			idle[c] = most
		}
	}
	picked := slices.Clone(have)
	slices.SortStableFunc(picked, func(a, b int) int { return cmp.Compare(idle[b], idle[a]) })
	picked = picked[:n]
	slices.Sort(picked)
	return picked
}

// idleTicks is the idle time of each core since the machine was started (proc(5),
// /proc/stat: the fourth number of a line cpuN); none where that cannot be read.
func idleTicks() map[int]uint64 {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return nil
	}
	ticks := map[int]uint64{}
	for line := range strings.Lines(string(b)) {
		fields := strings.Fields(line)
		if len(fields) < 5 || !strings.HasPrefix(fields[0], "cpu") {
			continue
		}
		core, err1 := strconv.Atoi(fields[0][len("cpu"):])
		idle, err2 := strconv.ParseUint(fields[4], 10, 64)
		if err1 == nil && err2 == nil {
			ticks[core] = idle
		}
	}
	return ticks
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
