package vfio

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// memoryStock is the memory that the kernel has left for this process.
type memoryStock struct {
	available uint64 // bytes
	hugePage  uint64 // bytes of a huge page of the default size; 0: none
	hugeFree  uint64 // huge pages that are neither used nor promised
}

// recentStock is the last answer of the kernel.
type recentStock struct {
	mu   sync.Mutex
	read time.Time
	memoryStock
}

var lastStock recentStock

// forAlloc is readMemoryStock, or what is left of an answer of just now: a program that sets up queues makes many
// allocations in a row. Huge pages, and a large part of the memory, are asked for each time.
func (r *recentStock) forAlloc(size uint64, huge HugePolicy) (s memoryStock, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	small := huge != HugeRequire && (r.hugePage == 0 || size < r.hugePage) && size <= r.available/1024
	if !small || time.Since(r.read) > 10*time.Millisecond {
		if r.memoryStock, err = readMemoryStock(); err != nil {
			r.read = time.Time{}
			return s, err
		}
		r.read = time.Now()
	}
	s = r.memoryStock
	r.available -= min(size, r.available)
	return s, nil
}

// readMemoryStock asks the kernel. Shared memory has no limit of its own:
// allocating more than there is does not fail but has the kernel kill
// processes, so AllocMemory looks here first.
func readMemoryStock() (memoryStock, error) {
	f, err := os.Open("/proc/meminfo")
	if errors.Is(err, fs.ErrNotExist) { // a root folder without /proc: caches, which could be emptied, are not counted
		var s unix.Sysinfo_t
		err := unix.Sysinfo(&s)
		return memoryStock{available: uint64(s.Freeram) * uint64(s.Unit)}, err
	}
	if err != nil {
		return memoryStock{}, err
	}
	defer f.Close()
	s, err := parseMeminfo(f)
	if err != nil {
		return memoryStock{}, err
	}
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err == nil {
		s.available = min(s.available, cgroupRoom("/sys/fs/cgroup", groups))
	}
	return s, nil
}

// parseMeminfo reads /proc/meminfo (proc_meminfo(5)).
func parseMeminfo(r io.Reader) (memoryStock, error) {
	values := map[string]uint64{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		name, rest, ok := strings.Cut(lines.Text(), ":")
		fields := strings.Fields(rest)
		if !ok || len(fields) == 0 {
			continue
		}
		n, err := strconv.ParseUint(fields[0], 10, 64)
		if err != nil || n > math.MaxUint64>>10 {
			continue
		}
		if len(fields) > 1 && fields[1] == "kB" {
			n <<= 10
		}
		values[name] = n
	}
	if err := lines.Err(); err != nil {
		return memoryStock{}, err
	}
	available, ok := values["MemAvailable"]
	if !ok {
		return memoryStock{}, io.ErrUnexpectedEOF
	}
	s := memoryStock{available: available, hugePage: values["Hugepagesize"]}
	if free, promised := values["HugePages_Free"], values["HugePages_Rsvd"]; free > promised {
		s.hugeFree = free - promised
	}
	return s, nil
}

// cgroupRoom returns how many bytes the version 2 control group named in
// groups, the content of /proc/self/cgroup, and those above it still allow. It
// returns the largest number if there is no limit or no such control group.
func cgroupRoom(root string, groups []byte) uint64 {
	room := uint64(math.MaxUint64)
	for line := range bytes.Lines(groups) {
		own, ok := strings.CutPrefix(strings.TrimSpace(string(line)), "0::")
		if !ok {
			continue
		}
		for dir := path.Clean("/" + own); ; dir = path.Dir(dir) {
			limit, err1 := readNumber(filepath.Join(root, dir, "memory.max"))
			used, err2 := readNumber(filepath.Join(root, dir, "memory.current"))
			if err1 == nil && err2 == nil {
				room = min(room, limit-min(limit, used))
			}
			if dir == "/" {
				break
			}
		}
	}
	return room
}

// readNumber reads a file that holds one decimal number. Files without a limit
// hold the word "max", which is an error here.
func readNumber(name string) (uint64, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
}
