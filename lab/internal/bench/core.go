package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// ErrCore: a process cannot be pinned to the core that was asked for.
var ErrCore = errors.New("cannot be pinned")

// pin pins a thread, 0 for the caller's, to core unless that is negative. Threads that it starts later
// inherit the choice.
func pin(id, core int) error {
	if core < 0 {
		return nil
	}
	var set unix.CPUSet
	set.Set(core)
	// A thread may have ended meanwhile.
	if err := unix.SchedSetaffinity(id, &set); err != nil && !errors.Is(err, unix.ESRCH) {
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
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	var threads []int
	for _, t := range tasks {
		id, err := strconv.Atoi(t.Name())
		if err == nil {
			threads, err = append(threads, id), pin(id, core)
		}
		if err != nil {
			return err
		}
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
func Cores() (cores []int) {
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

// quietFirst returns the cores that this process may use: first those that others use
// least during a tenth of a second.
func quietFirst() []int {
	have := Cores()
	if len(have) <= 2 {
		return have
	}
	idle := idleTicks()
	for core, ticks := range idle {
		idle[core] = -ticks
	}
	time.Sleep(100 * time.Millisecond)
	for core, ticks := range idleTicks() {
		idle[core] += ticks
	}
	return byIdleness(have, idle)
}

// byIdleness sorts cores by their idle time. Those with at least nine tenths of the most are alike, and stay in order.
func byIdleness(have []int, idle map[int]int) []int {
	most := 0
	for _, c := range have {
		most = max(most, idle[c])
	}
	rank := func(c int) int {
		if 10*idle[c] >= 9*most {
			return most
		}
		return idle[c]
	}
	slices.SortStableFunc(have, func(a, b int) int { return cmp.Compare(rank(b), rank(a)) })
	return have
}

// idleTicks is the idle time of each core since the machine was started (proc(5),
// /proc/stat: the fourth number of a line cpuN); none where that cannot be read.
func idleTicks() map[int]int {
	text, _ := os.ReadFile("/proc/stat")
	ticks := map[int]int{}
	for line := range strings.Lines(string(text)) {
		var core, user, nice, system, idle int
		if _, err := fmt.Sscanf(line, "cpu%d %d %d %d %d", &core, &user, &nice, &system, &idle); err == nil {
			ticks[core] = idle
		}
	}
	return ticks
}

// Proximity holds what the two hardware threads of a Pair have in common.
type Proximity string

const (
	// OneCore: they are hardware threads of one core, and share its first-level cache.
	OneCore Proximity = "one core"
	// TwoCores: they belong to different cores.
	TwoCores Proximity = "two cores"
)

// Pair is where two processes run.
type Pair struct {
	// Cores are the kernel's numbers of two hardware threads; none to pin nothing.
	Cores []int `json:"cores" text:"-"`
	// Proximity as the kernel tells it, empty where it does not.
	Proximity Proximity `json:"proximity,omitempty" help:"one core or two cores as the kernel tells it"`
}

// processors is where the kernel describes them
// (Documentation/admin-guide/cputopology.rst).
const processors = "/sys/devices/system/cpu"

// PairOf says of two hardware threads what they have in common.
func PairOf(a, b int) Pair {
	return newPair(a, b, readTopology(os.DirFS(processors), []int{a, b}))
}

// Pairs returns where two processes can be measured: on two cores, and on two hardware
// threads of one core, as far as there are such among those that this process may use.
// Each pair is the one that other programs use least now. On one hardware thread there is no pair.
func Pairs() []Pair {
	return pairs(os.DirFS(processors), quietFirst())
}

// pairs picks of each proximity the first pair in order. Two cores of one package come
// before those of two.
func pairs(sys fs.FS, order []int) (found []Pair) {
	known := readTopology(sys, order)
	var best [3]*Pair // of one package, of two, of one core
	for i, b := range order {
		for _, a := range order[:i] {
			p, kind := newPair(min(a, b), max(a, b), known), 1
			if p.Proximity == OneCore {
				kind = 2
			} else if known[a].packageID == known[b].packageID {
				kind = 0
			}
			if best[kind] == nil {
				best[kind] = &p
			}
		}
	}
	for _, p := range []*Pair{cmp.Or(best[0], best[1]), best[2]} {
		if p != nil {
			found = append(found, *p)
		}
	}
	return found
}

func newPair(a, b int, known map[int]location) Pair {
	p := Pair{Cores: []int{a, b}}
	switch x, y := known[a].siblings, known[b].siblings; {
	case x == "" || y == "" || a == b:
	case x == y:
		p.Proximity = OneCore
	default:
		p.Proximity = TwoCores
	}
	return p
}

// location is where a hardware thread is: the list of those of its core, and the number
// of its package. Both are empty where the kernel does not tell.
type location struct{ siblings, packageID string }

func readTopology(sys fs.FS, threads []int) map[int]location {
	known := map[int]location{}
	for _, n := range threads {
		// A file that cannot be read tells nothing.
		read := func(name string) string {
			b, _ := fs.ReadFile(sys, fmt.Sprintf("cpu%d/topology/%s", n, name))
			return strings.TrimSpace(string(b))
		}
		known[n] = location{read("thread_siblings_list"), read("physical_package_id")}
	}
	return known
}

// ball is a cache line that two cores throw to each other.
type ball struct {
	_ [64]byte
	n atomic.Uint64
	_ [64]byte
}

// throws is the number of times that the ball goes there and back between two looks at the clock.
const throws = 50

// Crossing is the time in ns in which a cache line goes from one of two cores to the
// other, in the median over about d; 0 unless there are two.
//
// It says where the two really are. A virtual machine's kernel does not know that: the
// host puts virtual processors where it likes, and elsewhere a second later.
func Crossing(ctx context.Context, cores []int, d time.Duration) (float64, error) {
	if len(cores) < 2 || cores[0] == cores[1] {
		return 0, nil
	}
	var b ball
	var stop atomic.Bool
	returned := make(chan error, 1)
	go func() {
		returned <- OnCore(ctx, cores[1], func() error {
			for !stop.Load() {
				if n := b.n.Load(); n%2 == 1 {
					b.n.Store(n + 1)
				}
			}
			return nil
		})
	}()
	var times []float64
	err := OnCore(ctx, cores[0], func() error {
		for end := time.Now().Add(d); len(times) == 0 || time.Now().Before(end); {
			start := time.Now()
			for range throws {
				next := b.n.Add(1) + 1
				for looks := 1; b.n.Load() != next; looks++ {
					// The other side may have failed.
					if looks%(1<<20) == 0 && (ctx.Err() != nil || len(returned) > 0) {
						return context.Cause(ctx)
					}
				}
			}
			times = append(times, float64(time.Since(start))/(2*throws))
		}
		return nil
	})
	stop.Store(true)
	if back := <-returned; err == nil {
		err = back
	}
	m, _ := Median(times)
	return float64(m), err
}
