package kernel

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/trapeze-nic/trapeze/internal/hostpci"
)

// heldBy says which other processes have one of the nodes open, as far as this one
// may look.
func (at opening) heldBy(nodes ...string) string {
	// Who cannot be seen is asked for below.
	list, _ := hostpci.Holders(at.root, nodes)
	list = slices.DeleteFunc(list, func(h hostpci.Holder) bool { return h.PID == os.Getpid() })
	if len(list) == 0 {
		return "another process, or another part of this one, holds it: fuser -v " + at.root.Path(nodes[0]) + " as root says which"
	}
	var names []string
	for _, h := range list {
		names = append(names, h.String())
	}
	return strings.Join(names, ", ") + " holds it"
}

// locked returns how many bytes this process has locked and pinned.
func locked(root hostpci.Root) uint64 {
	var sum uint64
	for line := range strings.Lines(root.Optional("proc/self/status")) {
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
