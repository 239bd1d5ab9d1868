package hostpci

import (
	"cmp"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Holder is a process that has a node open.
type Holder struct {
	PID  int
	Name string
	// State is a letter as in ps(1): R, S, D (waits in the kernel), T, Z ….
	State string
}

func (h Holder) String() string { return fmt.Sprintf("process %d (%s)", h.PID, h.Name) }

// Holders lists the processes that have one of the nodes open, such as
// "dev/vfio/12", sorted by number. Only root sees those of other users.
func Holders(r Root, nodes []string) ([]Holder, error) {
	if len(nodes) == 0 {
		return nil, nil
	}
	processes, err := r.Names("proc")
	if err != nil {
		return nil, err
	}
	var list []Holder
	for _, p := range processes {
		pid, err := strconv.Atoi(p)
		if err != nil {
			continue
		}
		dir := path.Join("proc", p)
		// Processes end at any time, and some may not be looked at.
		fds, err := r.Names(path.Join(dir, "fd"))
		if err != nil {
			continue
		}
		if slices.ContainsFunc(fds, func(fd string) bool {
			target, err := os.Readlink(r.Path(path.Join(dir, "fd", fd)))
			return err == nil && slices.Contains(nodes, strings.TrimPrefix(target, "/"))
		}) {
			list = append(list, Holder{PID: pid, Name: r.Optional(path.Join(dir, "comm")), State: stateOf(r.Optional(path.Join(dir, "stat")))})
		}
	}
	slices.SortFunc(list, func(a, b Holder) int { return cmp.Compare(a.PID, b.PID) })
	return list, nil
}

// stateOf finds the state in a process's stat file. It follows the name, which
// is in parentheses and may hold anything.
func stateOf(stat string) string {
	i := strings.LastIndex(stat, ") ")
	if i < 0 || i+2 >= len(stat) {
		return ""
	}
	return stat[i+2 : i+3]
}
