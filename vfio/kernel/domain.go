package kernel

import (
	"cmp"
	"slices"
	"sync"

	"github.com/trapeze-nic/trapeze/vfio"
)

// space is an address space that the kernel keeps for us. Errors are errnos or
// sentinels of package vfio, except openDevice's.
type space interface {
	// openDevice opens the function for whom the space was made, or another one
	// of its group.
	openDevice(at opening) (fd int, err error)
	mapDMA(mem *vfio.Memory, iova uint64, flags vfio.DMAFlags) error
	unmapDMA(iova, size uint64) error
	limits() (limits, error)
	close() error
}

// domain is an address space and what is mapped there.
type domain struct {
	space
	key   string
	users int // guarded by host.turn

	mu   sync.Mutex
	maps []mapped // sorted, apart from each other
	// known is the result of limits when the last function joined: only that
	// changes what can be mapped. How many mappings are left changes all the time.
	known limits
}

// refresh asks for the limits.
func (d *domain) refresh() (limits, error) {
	l, err := d.limits()
	if err != nil {
		return l, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.known = l
	return l, nil
}

// mapped is a range of bus addresses in use.
type mapped struct {
	iova, size uint64
	owner      *Device
}

// find returns where a mapping that begins at iova is or would be.
func (d *domain) find(iova uint64) (int, bool) {
	return slices.BinarySearchFunc(d.maps, iova, func(m mapped, iova uint64) int { return cmp.Compare(m.iova, iova) })
}

// overlaps returns a mapping that has addresses in common with the range, which
// does not wrap.
func (d *domain) overlaps(iova, size uint64) (mapped, bool) {
	i, ok := d.find(iova)
	switch {
	case ok:
		return d.maps[i], true
	case i > 0 && iova-d.maps[i-1].iova < d.maps[i-1].size:
		return d.maps[i-1], true
	case i < len(d.maps) && d.maps[i].iova-iova < size:
		return d.maps[i], true
	}
	return mapped{}, false
}

func (d *domain) add(m mapped) {
	i, _ := d.find(m.iova)
	d.maps = slices.Insert(d.maps, i, m)
}

// remove forgets the mapping at iova, which is there.
func (d *domain) remove(iova uint64) {
	if i, ok := d.find(iova); ok {
		d.maps = slices.Delete(d.maps, i, i+1)
	}
}

// owned lists what a device has mapped.
func (d *domain) owned(by *Device) []mapped {
	var list []mapped
	for _, m := range d.maps {
		if m.owner == by {
			list = append(list, m)
		}
	}
	return list
}
