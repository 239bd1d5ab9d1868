package kernel

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"golang.org/x/sys/unix"
)

// fake is a kernel with PCI functions that it hands out through VFIO. It keeps
// the rules of the real one, so that a wrong order of steps fails, and counts
// what is open. Any of its calls can be made to fail.
type fake struct {
	mu sync.Mutex
	tr tree

	fds   map[int]*handle
	next  int
	maps  map[*byte]int // mappings of regions
	calls []string      // what was called, by step name

	// fail says what a call fails with, by step name; nth makes the call number
	// failAt of all fail, whatever it is.
	fail   map[string]error
	failAt int
	nth    error

	viable     map[int]bool
	functions  map[string]*fakeFunction
	extensions []uintptr
	iommu      fakeIOMMU
	// pagemap maps virtual page numbers to entries; nil makes up frames in order.
	pagemap func(page uint64) uint64
}

// handle is an open descriptor.
type handle struct {
	kind     string // container, group, device, iommufd, pagemap
	group    int
	function *fakeFunction

	attached *handle               // a group's container
	groups   int                   // in a container
	iommuSet bool                  // of a container
	space    *fakeSpace            // of a container
	spaces   map[uint32]*fakeSpace // of an iommufd

	direct   bool    // a device's own node, which needs
	bound    *handle // an iommufd
	attachTo uint32  // and one of its address spaces
}

// fakeSpace is an address space.
type fakeSpace struct {
	maps map[uint64]uint64 // size by IOVA
}

// fakeIOMMU is what the IOMMU can do.
type fakeIOMMU struct {
	ranges []iovaRange
	pages  uint64
	limit  int  // mappings; 0 for none
	old    bool // it tells no ranges, as old kernels
}

func newFake(tr tree) *fake {
	return &fake{tr: tr, fds: map[int]*handle{}, next: 1000, maps: map[*byte]int{}, fail: map[string]error{}, failAt: -1,
		viable: map[int]bool{7: true}, functions: map[string]*fakeFunction{nic: newFakeFunction()},
		extensions: []uintptr{vfioType1v2IOMMU, vfioNoIOMMU},
		iommu: fakeIOMMU{pages: 0xfffffffffffff000, limit: 65535,
			ranges: []iovaRange{{start: 0, last: 0xfedfffff}, {start: 0xfef00000, last: 1<<39 - 1}}},
	}
}

// open makes a fake kernel for a tree and a host that uses it.
func openFake(t *testing.T, tr tree) (*fake, *host) {
	t.Helper()
	k := newFake(tr)
	h := newHost(k, tr.Root)
	t.Cleanup(func() { k.checkClosed(t) })
	return k, h
}

// errLeft: the kernel would clean up, but whoever counts on that with a
// descriptor for several address spaces leaks them.
var errLeft = errors.New("address spaces were left in the iommufd")

// checkClosed fails the test if anything is open or mapped.
func (k *fake) checkClosed(t *testing.T) {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	for fd, h := range k.fds {
		t.Errorf("descriptor %d of a %s is open", fd, h.kind)
	}
	should.Hold(t, len(k.maps) == 0, "%d regions are mapped", len(k.maps))
}

// enter notes a call and says what it fails with.
func (k *fake) enter(step string) error {
	n := len(k.calls)
	k.calls = append(k.calls, step)
	if n == k.failAt {
		return k.nth
	}
	return k.fail[step]
}

// steps returns what was called since the last time.
func (k *fake) steps() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.calls
	k.calls = nil
	return s
}

func (k *fake) add(h *handle) int {
	k.next++
	k.fds[k.next] = h
	return k.next
}

func (k *fake) open(name string, _ int) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	inside, err := filepath.Rel(string(k.tr.Root), name)
	if err != nil {
		return -1, unix.ENOENT
	}
	if err := k.enter("open " + inside); err != nil {
		return -1, err
	}
	if inside != "proc/self/pagemap" && !k.tr.Exists(inside) {
		return -1, unix.ENOENT
	}
	switch {
	case inside == "dev/vfio/vfio":
		return k.add(&handle{kind: "container"}), nil
	case inside == "dev/iommu":
		return k.add(&handle{kind: "iommufd"}), nil
	case inside == "proc/self/pagemap":
		return k.add(&handle{kind: "pagemap"}), nil
	case strings.HasPrefix(inside, "dev/vfio/devices/"):
		for address, f := range k.functions {
			if k.tr.Exists(ownNode(address, filepath.Base(inside))) {
				return k.add(&handle{kind: "device", function: f, direct: true}), nil
			}
		}
		return -1, unix.ENODEV
	}
	var group int
	if _, err := fmt.Sscanf(strings.TrimPrefix(filepath.Base(inside), "noiommu-"), "%d", &group); err != nil {
		return -1, unix.ENXIO
	}
	for _, h := range k.fds {
		if h.kind == "group" && h.group == group {
			return -1, unix.EBUSY
		}
	}
	return k.add(&handle{kind: "group", group: group}), nil
}

func (k *fake) close(fd int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	h := k.fds[fd]
	if h == nil {
		return unix.EBADF
	}
	delete(k.fds, fd)
	switch h.kind {
	case "group":
		if h.attached != nil {
			h.attached.groups--
		}
	case "device":
		h.function.closed()
	case "iommufd":
		if len(h.spaces) > 0 {
			delete(k.fds, fd)
			return errLeft
		}
	}
	return k.enter("close " + h.kind)
}

func (k *fake) ioctlNumber(fd int, request uint32, arg uintptr) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	h := k.fds[fd]
	if h == nil {
		return 0, unix.EBADF
	}
	switch {
	case h.kind == "container" && request == vfioGetAPIVersion:
		return 0, k.enter("GET_API_VERSION")
	case h.kind == "container" && request == vfioCheckExtension:
		if err := k.enter("CHECK_EXTENSION"); err != nil {
			return 0, err
		}
		if slices.Contains(k.extensions, arg) {
			return 1, nil
		}
		return 0, nil
	case h.kind == "container" && request == vfioSetIOMMU:
		if err := k.enter("SET_IOMMU"); err != nil {
			return 0, err
		}
		if h.groups == 0 {
			return 0, unix.EINVAL
		}
		h.iommuSet, h.space = true, &fakeSpace{maps: map[uint64]uint64{}}
		return 0, nil
	case h.kind == "device" && request == vfioDeviceReset:
		if err := k.enter("DEVICE_RESET"); err != nil {
			return 0, err
		}
		return 0, h.function.reset()
	}
	return 0, unix.ENOTTY
}

func (k *fake) ioctl(fd int, request uint32, arg []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	h := k.fds[fd]
	if h == nil {
		return 0, unix.EBADF
	}
	step, f := h.find(request)
	if f == nil {
		return 0, unix.ENOTTY
	}
	if err := k.enter(step); err != nil {
		return 0, err
	}
	return f(k, h, arg)
}

// answer is what a request does.
type answer func(k *fake, h *handle, arg []byte) (int, error)

// find returns the name of a request on such a descriptor, and what it does.
func (h *handle) find(request uint32) (string, answer) {
	type known struct {
		step string
		do   answer
	}
	x := map[string]map[uint32]known{
		"container": {
			vfioIOMMUGetInfo:  {"IOMMU_GET_INFO", (*fake).getInfo},
			vfioIOMMUMapDMA:   {"MAP_DMA", (*fake).mapDMA},
			vfioIOMMUUnmapDMA: {"UNMAP_DMA", (*fake).unmapDMA},
		},
		"group": {
			vfioGroupGetStatus:    {"GROUP_GET_STATUS", (*fake).status},
			vfioGroupSetContainer: {"SET_CONTAINER", (*fake).setContainer},
			vfioGroupGetDeviceFD:  {"GET_DEVICE_FD", (*fake).getDevice},
		},
		"iommufd": {
			iommuIOASAlloc:      {"IOAS_ALLOC", (*fake).ioasAlloc},
			iommuDestroy:        {"DESTROY", (*fake).destroy},
			iommuIOASIOVARanges: {"IOVA_RANGES", (*fake).ioasRanges},
			iommuIOASMap:        {"IOAS_MAP", (*fake).ioasMap},
			iommuIOASUnmap:      {"IOAS_UNMAP", (*fake).ioasUnmap},
		},
		"device": {
			vfioDeviceBindIOMMUFD:   {"BIND_IOMMUFD", (*fake).bind},
			vfioDeviceAttachPT:      {"ATTACH", (*fake).attach},
			vfioDeviceGetInfo:       {"GET_INFO", (*fake).deviceInfo},
			vfioDeviceGetRegionInfo: {"GET_REGION_INFO", (*fake).regionInfo},
			vfioDeviceGetIRQInfo:    {"GET_IRQ_INFO", (*fake).irqInfo},
			vfioDeviceSetIRQs:       {"SET_IRQS", (*fake).setIRQs},
		},
	}[h.kind][request]
	return x.step, x.do
}

// mapped returns what is mapped in all address spaces that are open.
func (k *fake) mapped() map[uint64]uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := map[uint64]uint64{}
	for _, h := range k.fds {
		if h.space != nil {
			maps.Copy(all, h.space.maps)
		}
		for _, s := range h.spaces {
			maps.Copy(all, s.maps)
		}
	}
	return all
}
