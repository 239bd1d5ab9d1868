package kernel

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/vfio"
)

// iommufd is the process's descriptor of /dev/iommu. There is one for all
// address spaces: the kernel lets a bus be reset only if it sees that all
// functions there belong to one.
type iommufd struct {
	fd, users int
}

// ioasSpace is an I/O address space of /dev/iommu.
type ioasSpace struct {
	host    *host
	sys     system
	iommufd int
	ioas    uint32
}

// openIOMMUFD makes an address space. Devices are attached to it later.
func (at opening) openIOMMUFD() (_ space, err error) {
	if at.node == "" {
		return nil, at.fail("find the node of", unix.ENOENT, "use backend=group if this kernel gives functions no nodes of their own; "+at.hostHint(at.fn.Address))
	}
	if at.iommufd.users == 0 {
		if at.iommufd.fd, err = at.openNode("iommufd", "dev/iommu"); err != nil {
			return nil, err
		}
	}
	at.iommufd.users++
	a := ioasAlloc{}
	if _, err := at.sys.ioctl(at.iommufd.fd, iommuIOASAlloc, sized(&a)); err != nil {
		return nil, errors.Join(at.failStep("make an address space for", err), at.closeIOMMUFD())
	}
	return &ioasSpace{host: at.host, sys: at.sys, iommufd: at.iommufd.fd, ioas: a.ioas}, nil
}

// closeIOMMUFD closes /dev/iommu after the last address space. The caller has
// its turn.
func (h *host) closeIOMMUFD() error {
	h.iommufd.users--
	if h.iommufd.users > 0 {
		return nil
	}
	return h.sys.close(h.iommufd.fd)
}

// openDevice opens the function's node, makes it ours and attaches it to the
// address space. Nothing else works before.
func (s *ioasSpace) openDevice(at opening) (_ int, err error) {
	fd, err := at.openNode("node", at.node)
	if err != nil {
		return -1, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, at.sys.close(fd))
		}
	}()
	bind := newBind(s.iommufd, at.Token.bytes())
	if _, err := at.sys.ioctl(fd, vfioDeviceBindIOMMUFD, bytesOf(bind)[:bind.argsz]); err != nil {
		return -1, at.failBind("bind to iommufd", err)
	}
	if _, err := at.sys.ioctl(fd, vfioDeviceAttachPT, sized(&attachPT{pageT: s.ioas})); err != nil {
		return -1, at.failStep("attach to an address space", err)
	}
	return fd, nil
}

func (s *ioasSpace) mapDMA(mem *vfio.Memory, iova uint64, flags vfio.DMAFlags) error {
	m := ioasMap{flags: ioasMapFixedIOVA, ioas: s.ioas, userVA: mem.Address(), length: mem.Size(), iova: iova}
	if flags&vfio.DMARead != 0 {
		m.flags |= ioasMapReadable
	}
	if flags&vfio.DMAWrite != 0 {
		m.flags |= ioasMapWriteable
	}
	_, err := s.sys.ioctl(s.iommufd, iommuIOASMap, sized(&m))
	return err
}

func (s *ioasSpace) unmapDMA(iova, size uint64) error {
	u := ioasUnmap{ioas: s.ioas, iova: iova, length: size}
	_, err := s.sys.ioctl(s.iommufd, iommuIOASUnmap, sized(&u))
	switch {
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("%w: %w", vfio.ErrNotMapped, err)
	case err != nil:
		return err
	case u.length != size:
		return vfio.ErrNotMapped
	}
	return nil
}

// manyRanges is more than any IOMMU driver cuts its addresses into.
const manyRanges = 1 << 16

// limits asks the address space (IOMMU_IOAS_IOVA_RANGES), which is narrowed by
// each device that is attached. The kernel says how many ranges there are if
// they do not fit.
func (s *ioasSpace) limits() (limits, error) {
	for n := 16; n <= manyRanges; {
		ranges := make([]iovaRange, n)
		r := newIOVARanges(s.ioas, ranges)
		_, err := s.sys.ioctl(s.iommufd, iommuIOASIOVARanges, bytesOf(r))
		switch {
		case errors.Is(err, unix.EMSGSIZE):
			n = max(2*n, int(min(r.num, manyRanges)))
			continue
		case err != nil:
			return limits{}, err
		case int(r.num) > n:
			return limits{}, unix.EPROTO
		}
		l := limits{page: r.alignment, available: unknown}
		for _, x := range ranges[:r.num] {
			if x.start <= x.last {
				l.ranges = append(l.ranges, vfio.IOVARange{First: x.start, Last: x.last})
			}
		}
		slices.SortFunc(l.ranges, byFirst)
		return l, nil
	}
	return limits{}, unix.EMSGSIZE
}

// close destroys the address space. No device is attached to it any more.
func (s *ioasSpace) close() error {
	_, err := s.sys.ioctl(s.iommufd, iommuDestroy, sized(&destroy{id: s.ioas}))
	return errors.Join(err, s.host.closeIOMMUFD())
}
