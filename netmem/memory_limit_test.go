package netmem_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/netmem"
)

func TestMemoryLimit(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		limit uint64
		file  string
	}{
		"nothing is known":       {nil, 0, ""},
		"only the first version": {map[string]string{"proc/self/cgroup": "4:memory:/a\n"}, 0, ""},
		"no limit":               {map[string]string{"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "max\n"}, 0, ""},
		"its own": {map[string]string{"proc/self/cgroup": "1:name=x:/\n0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "1000\n", "sys/fs/cgroup/a/memory.max": "max\n"},
			1000, "/sys/fs/cgroup/a/b/memory.max"},
		"the one above is lower": {map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "1000\n", "sys/fs/cgroup/a/memory.max": "10\n"},
			10, "/sys/fs/cgroup/a/memory.max"},
		"zero is a limit":    {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "0"}, 0, "/sys/fs/cgroup/memory.max"},
		"a name that climbs": {map[string]string{"proc/self/cgroup": "0::/../../a\n", "sys/fs/cgroup/a/memory.max": "5"}, 5, "/sys/fs/cgroup/a/memory.max"},
		"no number":          {map[string]string{"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "many"}, 0, ""},
	} {
		limit, file := netmem.MemoryLimit(func(name string) string { return c.files[name] })
		should.Be(t, limit, c.limit, "%s", name)
		should.Be(t, file, c.file, "%s", name)
	}
}
