package emulator

import (
	"slices"

	"github.com/trapeze-nic/trapeze/vfio"
)

// addWindow maps mem at iova. Unlike add it joins mem to a neighbour where one goes on
// where the other ends, on the bus and in memory: a guest behind a virtual IOMMU makes
// thousands of windows of one page, most of which do.
func (u *iommu) addWindow(mem []byte, iova uint64, flags vfio.DMAFlags) error {
	m := dmaMapping{iova: iova, size: uint64(len(mem)), mem: mem, flags: flags}
	if m.end() <= iova {
		return vfio.ErrIOVARange
	}
	i := u.search(iova)
	if i < len(u.mappings) && u.mappings[i].iova < m.end() {
		return vfio.ErrIOVAInUse
	}
	u.generation++
	if i > 0 && u.mappings[i-1].joins(&m) {
		i--
		u.mappings[i].grow(&m)
	} else {
		u.mappings = slices.Insert(u.mappings, i, m)
	}
	if i+1 < len(u.mappings) && u.mappings[i].joins(&u.mappings[i+1]) {
		u.mappings[i].grow(&u.mappings[i+1])
		u.mappings = slices.Delete(u.mappings, i+1, i+2)
	}
	return nil
}

// joins reports whether next goes on where m ends.
func (m *dmaMapping) joins(next *dmaMapping) bool {
	return m.end() == next.iova && m.flags == next.flags && follows(m.mem, next.mem)
}

func (m *dmaMapping) grow(next *dmaMapping) {
	m.mem = join(m.mem, next.mem)
	m.size += next.size
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
