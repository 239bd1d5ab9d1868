package kernel

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// holder is a process that has a node open.
type holder struct {
	pid  int
	name string
}

func (h holder) String() string { return fmt.Sprintf("process %d (%s)", h.pid, h.name) }

// holders lists the other processes that have a node open, as far as this one
// may look.
func (f files) holders(node string) []holder {
	links, err := filepath.Glob(f.path("proc/[0-9]*/fd/*"))
	if err != nil {
		return nil
	}
	var list []holder
	for _, link := range links {
		target, err := os.Readlink(link)
		if err != nil || target != node {
			continue
		}
		process := filepath.Dir(filepath.Dir(link))
		pid, err := strconv.Atoi(filepath.Base(process))
		if err != nil || pid == os.Getpid() || len(list) > 0 && list[len(list)-1].pid == pid {
			continue
		}
		list = append(list, holder{pid, f.text(filepath.Join(process, "comm"))})
	}
	return list
}

// heldBy says who has a node open.
func (f files) heldBy(node string) string {
	list := f.holders(node)
	if len(list) == 0 {
		return "another process, or another part of this one, holds it: fuser -v " + node + " as root says which"
	}
	var names []string
	for _, h := range list {
		names = append(names, h.String())
	}
	return strings.Join(names, ", ") + " holds it"
}

// locked returns how many bytes this process has locked and pinned.
func (f files) locked() uint64 {
	var sum uint64
	for line := range strings.Lines(f.text(f.path("proc/self/status"))) {
		name, rest, _ := strings.Cut(line, ":")
		fields := strings.Fields(rest)
		if name != "VmLck" && name != "VmPin" || len(fields) == 0 {
			continue
		}
		if kib, err := strconv.ParseUint(fields[0], 10, 54); err == nil {
			sum += kib << 10
		}
	}
	return sum
}
