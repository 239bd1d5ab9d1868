package kernel

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/vfio"
)

// groupSpace is an IOMMU group in a container of its own.
type groupSpace struct {
	sys              system
	container, group int
}

// openContainer puts the function's group into a new container with an IOMMU of
// the given type.
func (at opening) openContainer(iommu uintptr) (_ *groupSpace, err error) {
	if at.fn.IOMMUGroup < 0 {
		return nil, at.failStep("find the IOMMU group of", unix.ENOENT)
	}
	g := &groupSpace{sys: at.sys, container: -1, group: -1}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.close())
		}
	}()
	if g.container, err = at.openNode("container", "dev/vfio/vfio"); err != nil {
		return nil, err
	}
	version, err := at.sys.ioctlNumber(g.container, vfioGetAPIVersion, 0)
	if err != nil {
		return nil, at.failStep("ask for the VFIO version to open", err)
	}
	if version != vfioAPIVersion {
		return nil, at.fail("ask for the VFIO version to open", fmt.Errorf("%w: version %d, this program knows %d",
			vfio.ErrNotSupported, version, vfioAPIVersion), "")
	}
	if n, err := at.sys.ioctlNumber(g.container, vfioCheckExtension, iommu); err != nil || n == 0 {
		return nil, at.failStep("ask for the type of IOMMU to open", errors.Join(vfio.ErrNotSupported, err))
	}
	if g.group, err = at.openNode("group", at.fn.GroupNode()); err != nil {
		return nil, err
	}
	status := groupStatus{}
	if _, err := at.sys.ioctl(g.group, vfioGroupGetStatus, sized(&status)); err != nil {
		return nil, at.fail("read the group's status to open", err, "")
	}
	if status.flags&groupViable == 0 {
		return nil, at.notViable("check the group to open", errNotViable)
	}
	if status.flags&groupContainerSet != 0 {
		return nil, at.fail("check the group to open", unix.EBUSY, at.heldBy(at.fn.GroupNode()))
	}
	fd := int32(g.container)
	switch _, err := at.sys.ioctl(g.group, vfioGroupSetContainer, bytesOf(&fd)); {
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EINVAL):
		return nil, at.fail("put the group into a container to open", err, at.heldBy(at.fn.GroupNode()))
	case err != nil:
		return nil, at.notViable("put the group into a container to open", err)
	}
	if _, err := at.sys.ioctlNumber(g.container, vfioSetIOMMU, iommu); err != nil {
		return nil, at.failStep("set the container's IOMMU to open", err)
	}
	return g, nil
}

// openDevice takes the function out of the group.
func (g *groupSpace) openDevice(at opening) (int, error) {
	name := at.fn.Address
	if at.Token != "" {
		name += " vf_token=" + string(at.Token)
	}
	fd, err := at.sys.ioctl(g.group, vfioGroupGetDeviceFD, append([]byte(name), 0))
	if err != nil {
		return -1, at.failDevice("take from its group", err)
	}
	return fd, nil
}

func (g *groupSpace) mapDMA(mem *vfio.Memory, iova uint64, flags vfio.DMAFlags) error {
	m := dmaMap{vaddr: mem.Address(), iova: iova, size: mem.Size()}
	if flags&vfio.DMARead != 0 {
		m.flags |= dmaMapRead
	}
	if flags&vfio.DMAWrite != 0 {
		m.flags |= dmaMapWrite
	}
	_, err := g.sys.ioctl(g.container, vfioIOMMUMapDMA, sized(&m))
	return err
}

// unmapDMA leaves the flags at zero: the bits that mean read and write when
// mapping mean other things here.
func (g *groupSpace) unmapDMA(iova, size uint64) error {
	u := dmaUnmap{iova: iova, size: size}
	if _, err := g.sys.ioctl(g.container, vfioIOMMUUnmapDMA, sized(&u)); err != nil {
		return err
	}
	if u.size != size { // how much there was
		return vfio.ErrNotMapped
	}
	return nil
}

// limits asks the container (VFIO_IOMMU_GET_INFO).
func (g *groupSpace) limits() (limits, error) {
	info := iommuInfo{}
	b, err := askWithCaps(sized(&info), func(b []byte) error {
		_, err := g.sys.ioctl(g.container, vfioIOMMUGetInfo, b)
		return err
	})
	if err != nil {
		return limits{}, err
	}
	return parseIOMMUInfo(b)
}

// close closes what is open. The group goes first: that takes it out of the
// container.
func (g *groupSpace) close() error {
	var errs []error
	for _, fd := range []int{g.group, g.container} {
		if fd >= 0 {
			errs = append(errs, g.sys.close(fd))
		}
	}
	g.group, g.container = -1, -1
	return errors.Join(errs...)
}
