package kernel

import (
	"sync"

	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/vfio/internal/ranges"
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
	maps ranges.Table[*mapped]
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

// First and Last are the first and the last address.
func (m *mapped) First() uint64 { return m.iova }
func (m *mapped) Last() uint64  { return m.iova + (m.size - 1) }

// owned lists what a device has mapped.
func (d *domain) owned(by *Device) []*mapped {
	var list []*mapped
	for _, m := range d.maps {
		if m.owner == by {
			list = append(list, m)
		}
	}
	return list
}
