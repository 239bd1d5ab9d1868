package bench

import (
	"fmt"
	"io/fs"
	"os"
	"strings"
)

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
	Cores []int `json:"cores"`
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
// Each pair is one that others use least now. None if there is one hardware thread only.
func Pairs() []Pair {
	return pairs(os.DirFS(processors), quietFirst())
}

// pairs picks of each proximity the first pair in order. Two cores of one package come
// before those of two.
func pairs(sys fs.FS, order []int) []Pair {
	known := readTopology(sys, order)
	var near, far, single *Pair
	for i, b := range order {
		for _, a := range order[:i] {
			p := newPair(min(a, b), max(a, b), known)
			switch {
			case p.Proximity == OneCore && single == nil:
				single = &p
			case p.Proximity != OneCore && known[a].packageID == known[b].packageID && near == nil:
				near = &p
			case p.Proximity != OneCore && far == nil:
				far = &p
			}
		}
	}
	if near == nil {
		near = far
	}
	var found []Pair
	for _, p := range []*Pair{near, single} {
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
