package emulator

import (
	"fmt"
	"slices"

	"github.com/trapeze-nic/trapeze/vfio"
)

// iommu translates bus addresses. It implements engine.Memory. All of it is
// used with the engine's lock held: by the engine, or inside Exclusive.
type iommu struct {
	mappings   []dmaMapping // by iova
	generation uint64
	master     bool // bus mastering is on
	// limit bounds the bytes of all mappings; zero: no limit.
	limit uint64
}

type dmaMapping struct {
	iova, size uint64
	mem        []byte
	flags      vfio.DMAFlags
}

func (m *dmaMapping) end() uint64 { return m.iova + m.size }

// search returns the index of the first mapping that ends after iova.
func (u *iommu) search(iova uint64) int {
	i, _ := slices.BinarySearchFunc(u.mappings, iova, func(m dmaMapping, iova uint64) int {
		if m.end() <= iova {
			return -1
		}
		return 1
	})
	return i
}

func (u *iommu) Window(iova, n uint64, write bool) ([]byte, error) {
	if !u.master {
		return nil, errBusMasterOff
	}
	i := u.search(iova)
	if i == len(u.mappings) || iova < u.mappings[i].iova || n == 0 {
		return nil, errNotMapped
	}
	need := vfio.DMARead
	if write {
		need = vfio.DMAWrite
	}
	m := &u.mappings[i]
	if m.flags&need == 0 {
		return nil, errPermission
	}
	w := m.mem[iova-m.iova:]
	for uint64(len(w)) < n && i+1 < len(u.mappings) {
		next := &u.mappings[i+1]
		if next.iova != m.end() || next.flags&need == 0 || !follows(w, next.mem) {
			break
		}
		w = join(w, next.mem)
		m = next
		i++
	}
	if uint64(len(w)) > n {
		w = w[:n]
	}
	return w[:len(w):len(w)], nil
}

func (u *iommu) Generation() uint64 { return u.generation }

// add maps mem at iova, unless something is mapped there.
func (u *iommu) add(mem []byte, iova uint64, flags vfio.DMAFlags) error {
	m := dmaMapping{iova: iova, size: uint64(len(mem)), mem: mem, flags: flags}
	if m.end() <= iova {
		return vfio.ErrIOVARange
	}
	i := u.search(iova)
	if i < len(u.mappings) && u.mappings[i].iova < m.end() {
		return vfio.ErrIOVAInUse
	}
	if u.limit != 0 && u.mapped()+m.size > u.limit {
		return fmt.Errorf("%w: %d bytes are mapped, %d more are wanted, at most %d", ErrMemory, u.mapped(), m.size, u.limit)
	}
	u.mappings = slices.Insert(u.mappings, i, m)
	// What was out of reach is within it: a part of a region that an engine has
	// looked up in vain, or one that now goes on further.
	u.generation++
	return nil
}

// mapped returns the bytes of all mappings.
func (u *iommu) mapped() (n uint64) {
	for i := range u.mappings {
		n += u.mappings[i].size
	}
	return n
}

// remove ends exactly one mapping.
func (u *iommu) remove(iova, size uint64) error {
	i := u.search(iova)
	if i == len(u.mappings) || u.mappings[i].iova != iova || u.mappings[i].size != size {
		return vfio.ErrNotMapped
	}
	u.mappings = slices.Delete(u.mappings, i, i+1)
	u.generation++
	return nil
}

// clear ends all mappings.
func (u *iommu) clear() {
	u.mappings = nil
	u.generation++
}

// setMaster lets the device do DMA or not.
func (u *iommu) setMaster(on bool) {
	if u.master != on {
		u.master = on
		u.generation++
	}
}
