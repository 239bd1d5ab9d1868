// Package memlimit finds how much memory a process may have: the least of the limits of its
// control group and those above (Linux, Documentation/admin-guide/cgroup-v2.rst, memory.max).
package memlimit

import (
	"path"
	"strconv"
	"strings"
)

// Least returns the lowest limit in bytes, and the file that sets it; an empty name if there is
// no limit. read returns the content of a file, whose name is relative to the root, or "".
func Least(read func(name string) string) (limit uint64, file string) {
	group, found := "", false
	for line := range strings.Lines(read("proc/self/cgroup")) {
		// The second version has one hierarchy, whose number is 0.
		if rest, ok := strings.CutPrefix(line, "0::"); ok {
			group, found = path.Clean("/"+strings.TrimSpace(rest)), true
		}
	}
	if !found {
		return 0, ""
	}
	for {
		name := path.Join("sys/fs/cgroup", group, "memory.max")
		n, err := strconv.ParseUint(strings.TrimSpace(read(name)), 10, 64)
		if err == nil && (file == "" || n < limit) {
			limit, file = n, "/"+name
		}
		if group == "/" {
			return limit, file
		}
		group = path.Dir(group)
	}
}
