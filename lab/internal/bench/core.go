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

// pinProcess makes this process one that polls on core, unless that is negative: all its
// threads, and those that they will start, run there.
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
	var threads []int
	for _, t := range tasks {
		id, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		// A thread may have ended meanwhile.
		if err := unix.SchedSetaffinity(id, &set); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("%w to core %d: %w", ErrCore, core, err)
		}
		threads = append(threads, id)
	}
	// By itself the runtime learns up to a second later that it has one core only;
	// until then its threads take that core from each other.
	runtime.SetDefaultGOMAXPROCS()
	lullMonitor(threads)
	return nil
}

// monitorSlack is by how many nanoseconds the runtime's monitor may wake up late: as much
// as the longest sleep that it asks for (runtime/proc.go, sysmon), and more than the time
// between two ticks of any kernel's clock.
const monitorSlack = 10_000_000

// lullMonitor lets the monitor of Go's runtime, which looks at a busy program a hundred
// times a second, wake up with a tick of the kernel's clock instead of a timer interrupt
// of its own (proc_pid_timerslack_ns(5)). That takes CAP_SYS_NICE: without it nothing
// changes.
func lullMonitor(threads []int) {
	// The runtime starts it before any other thread.
	slices.Sort(threads)
	if i := slices.Index(threads, os.Getpid()); i >= 0 && i+1 < len(threads) {
		_ = os.WriteFile(fmt.Sprintf("/proc/%d/timerslack_ns", threads[i+1]), strconv.AppendInt(nil, monitorSlack, 10), 0)
	}
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

// watching is for how long quietFirst looks at the cores.
const watching = 100 * time.Millisecond

// quietFirst returns the cores that this process may use: first those that others use
// least now.
func quietFirst() []int {
	have := Cores()
	if len(have) <= 2 {
		return have
	}
	before := idleTicks()
	time.Sleep(watching)
	return byIdleness(have, before, idleTicks())
}

// byIdleness sorts cores by how much more idle time each has after than before. Those
// with at least nine tenths of the most are alike, and stay in order.
func byIdleness(have []int, before, after map[int]uint64) []int {
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
	sorted := slices.Clone(have)
	slices.SortStableFunc(sorted, func(a, b int) int { return cmp.Compare(idle[b], idle[a]) })
	return sorted
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
