package netmem

import (
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
)

// MemoryLimit returns how many bytes of memory this process may have, and the file that says
// so; an empty name if there is no limit. It is the least of the limits of the process's control
// group and of those above (Linux, Documentation/admin-guide/cgroup-v2.rst, memory.max). read
// returns the content of a file, whose name is relative to the root, or "".
func MemoryLimit(read func(name string) string) (limit uint64, file string) {
	for line := range strings.Lines(read("proc/self/cgroup")) {
		group, ours := strings.CutPrefix(strings.TrimSpace(line), "0::") // the second version has one hierarchy, whose number is 0
		for group = path.Clean("/" + group); ours; group = path.Dir(group) {
			name := path.Join("sys/fs/cgroup", group, "memory.max")
			n, err := strconv.ParseUint(strings.TrimSpace(read(name)), 10, 64)
			if err == nil && (file == "" || n < limit) {
				limit, file = n, "/"+name
			}
			ours = group != "/"
		}
	}
	return limit, file
}

// fits says whether this process may have so many bytes of memory. More than its control group
// may have would not fail: it would end the process.
func fits(local int64) error {
	limit, file := MemoryLimit(func(name string) string {
		b, _ := os.ReadFile("/" + name) // without the file there is no such limit
		return string(b)
	})
	if file == "" || uint64(local) <= limit {
		return nil
	}
	return &Error{Op: "map memory", Err: fmt.Errorf("%w: %d bytes of local memory, and %s allows %d", ErrLocal, local, file, limit),
		Hint: "give less local memory, or raise MemoryMax= of the service"}
}
