package kernel

import (
	"errors"
	"fmt"
	"log/slog"
	"os"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/hostpci"
	"github.com/trapeze-nic/trapeze/vfio"
)

// unguardedSpace is physical memory: there is no IOMMU, so nothing is mapped
// and nothing is checked by anyone else.
type unguardedSpace struct {
	*groupSpace
	root    hostpci.Root
	pagemap int
}

// openUnguarded opens the function's group without an IOMMU.
func (at opening) openUnguarded() (_ space, err error) {
	if !at.fn.Unguarded {
		if at.fn.IOMMUGroup >= 0 {
			return nil, at.fail("open without IOMMU", vfio.ErrNotSupported,
				"an IOMMU guards this function: leave backend=noiommu out")
		}
		return nil, at.failStep("open without IOMMU", unix.ENOENT)
	}
	pagemap, err := at.sys.open(at.root.Path("proc/self/pagemap"), unix.O_RDONLY)
	if err != nil {
		return nil, at.fail("open the page map for", err, "physical addresses come from there: it needs CONFIG_PROC_PAGE_MONITOR")
	}
	g, err := at.openContainer(vfioNoIOMMU)
	if err != nil {
		return nil, errors.Join(err, at.sys.close(pagemap))
	}
	slog.Warn("NO IOMMU: this device can read and write ALL memory of this machine, and so can those who control it; "+
		"one wrong address corrupts or crashes the system. The kernel is now marked as tainted.", "device", at.text)
	return &unguardedSpace{groupSpace: g, root: at.root, pagemap: pagemap}, nil
}

// mapDMA checks that the memory is where the device will look for it.
func (s *unguardedSpace) mapDMA(mem *vfio.Memory, iova uint64, _ vfio.DMAFlags) error {
	at, err := s.physical(mem)
	if err != nil {
		return err
	}
	if at != iova {
		return &hintedError{fmt.Errorf("%w: the physical address is %#x, not %#x", vfio.ErrIOVARange, at, iova),
			"without an IOMMU a bus address cannot be chosen: take the one that PhysicalAddress gives"}
	}
	return nil
}

// physical returns the physical address of memory. Only huge pages stay where
// they are: the kernel moves others when it likes, locked or not.
func (s *unguardedSpace) physical(mem *vfio.Memory) (uint64, error) {
	if mem.PageSize() <= uint64(os.Getpagesize()) {
		return 0, &hintedError{fmt.Errorf("%w: memory of normal pages, which may move", vfio.ErrNotSupported),
			"without an IOMMU memory must come from huge pages (vfio.HugeRequire; sysctl vm.nr_hugepages)"}
	}
	return s.locate(mem.Address(), mem.Size())
}

func (s *unguardedSpace) unmapDMA(_, _ uint64) error { return nil }

// limits are all memory there is, if the kernel tells.
func (s *unguardedSpace) limits() (limits, error) {
	return limits{ranges: systemRAM(s.root), available: unknown}, nil
}

func (s *unguardedSpace) close() error {
	err := s.sys.close(s.pagemap)
	return errors.Join(s.groupSpace.close(), err)
}

// hintedError is an error that knows what to do about it.
type hintedError struct {
	error
	hint string
}

func (e *hintedError) Unwrap() error { return e.error }
