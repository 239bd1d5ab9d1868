package coherence

import (
	"slices"

	"github.com/trapeze-nic/trapeze/lab/internal/profile"
)

// cache knows which lines one level holds: sets of ways, least recently used out. What
// state a block is in stands with the block.
type cache struct {
	profile.Cache
	sets map[int][]int // lines, the least recently used first
}

func newCache(c profile.Cache) *cache { return &cache{c, map[int][]int{}} }

// use looks a line up and makes it the most recently used. If it was not there, it is
// from then on, and victim is the line that had to go, or -1.
func (c *cache) use(line int) (hit bool, victim int) {
	index := line % c.Sets()
	set := c.sets[index]
	victim = -1
	if i := slices.Index(set, line); i >= 0 {
		set = slices.Delete(set, i, i+1)
		hit = true
	} else if len(set) == c.Ways {
		victim = set[0]
		set = slices.Delete(set, 0, 1)
	}
	c.sets[index] = append(set, line)
	return hit, victim
}

// drop forgets a line.
func (c *cache) drop(line int) {
	index := line % c.Sets()
	c.sets[index] = slices.DeleteFunc(c.sets[index], func(l int) bool { return l == line })
}
