package emulator

import (
	"slices"

	"github.com/trapeze-nic/trapeze/vfio"
)

// addWindow maps mem at iova. Unlike add it joins mem to a neighbour where one goes on
// where the other ends, on the bus and in memory: a guest behind a virtual IOMMU makes
// thousands of windows of one page, most of which do.
func (u *iommu) addWindow(mem []byte, iova uint64, flags vfio.DMAFlags) error {
	if err := u.add(mem, iova, flags); err != nil {
		return err
	}
	i := u.search(iova)
	u.join(i)
	u.join(i - 1)
	return nil
}

// join makes one of mapping i and the next, if the next goes on where i ends.
func (u *iommu) join(i int) {
	if i < 0 || i+1 >= len(u.mappings) {
		return
	}
	m, next := &u.mappings[i], &u.mappings[i+1]
	if m.end() == next.iova && m.flags == next.flags && follows(m.mem, next.mem) {
		m.mem, m.size = join(m.mem, next.mem), m.size+next.size
		u.mappings = slices.Delete(u.mappings, i+1, i+2)
	}
}

// removeWindows ends what is mapped from first to last, both included.
func (u *iommu) removeWindows(first, last uint64) {
	from := u.search(first)
	to := from
	for to < len(u.mappings) && u.mappings[to].iova <= last {
		to++
	}
	if from == to {
		return
	}
	// What was joined is cut again: at most one piece is left on either side.
	var left []dmaMapping
	if m := u.mappings[from]; m.iova < first {
		n := first - m.iova
		left = append(left, dmaMapping{iova: m.iova, size: n, mem: m.mem[:n:n], flags: m.flags})
	}
	if m := u.mappings[to-1]; m.end()-1 > last {
		n := last + 1 - m.iova
		left = append(left, dmaMapping{iova: last + 1, size: m.size - n, mem: m.mem[n:], flags: m.flags})
	}
	u.mappings = slices.Replace(u.mappings, from, to, left...)
	u.generation++
}
