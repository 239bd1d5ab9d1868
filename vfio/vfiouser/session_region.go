package vfiouser

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser/internal/protocol"
)

func (n *session) deviceInfo(m *protocol.Message) (reply, error) {
	if _, err := protocol.DecodeDeviceInfo(m.Payload); err != nil {
		return reply{}, err
	}
	info := n.dev.Info()
	flags := protocol.DevicePCI
	if info.Resettable {
		flags |= protocol.DeviceReset
	}
	n.out = protocol.DeviceInfo{Argsz: protocol.DeviceInfoSize, Flags: flags,
		Regions: uint32(max(info.Regions, pciRegions)), IRQs: uint32(info.IRQs)}.Append(n.out[:0])
	return reply{payload: n.out}, nil
}

// pciRegions is the number of regions that a PCI device has for Linux and for libvfio-user
// (VFIO_PCI_NUM_REGIONS, linux/vfio.h), whose client refuses devices with another
// number. The last is VGA, which is empty where a device does not have it.
const pciRegions = vfio.RegionConfig + 2

// region describes the region that a message asks for.
func (n *session) region(c protocol.Command, index uint32) (vfio.RegionInfo, error) {
	has := n.dev.Info().Regions
	switch {
	case uint64(index) < uint64(has):
		return n.dev.Region(int(index))
	case index < pciRegions:
		return vfio.RegionInfo{Index: int(index)}, nil
	}
	return vfio.RegionInfo{}, protocol.Invalid(c, "region", index, "the device has %d", max(has, pciRegions))
}

func (n *session) regionInfo(m *protocol.Message) (reply, error) {
	in, err := protocol.DecodeRegionInfo(m.Payload)
	if err != nil {
		return reply{}, err
	}
	info, err := n.region(m.Header.Command, in.Index)
	if err != nil {
		return reply{}, err
	}
	out := protocol.RegionInfo{Flags: info.Flags, Index: in.Index, Size: info.Size}
	var r reply
	if info.Flags&vfio.RegionMmap != 0 {
		fd, offset, err := n.regionFile(int(in.Index))
		if err != nil {
			n.log.Error("vfio-user: region cannot be shared", "region", in.Index, "error", err)
			out.Flags &^= vfio.RegionMmap
		} else {
			r.fds, out.Offset = []int{fd}, offset
			if len(info.Sparse) > 0 {
				out.Sparse = info.Sparse
			}
		}
	}
	out.Argsz = out.ReplySize()
	n.out = out.Append(n.out[:0], in.Argsz)
	r.payload = n.out
	return r, nil
}

// regionSeals keep a client from shrinking a region's file, and from sealing it
// in a way that the next client could not use it.
const regionSeals = unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL

// regionFile finds the file of a region, if it may be given away.
func (n *session) regionFile(index int) (fd int, offset uint64, err error) {
	err = n.call(func() (err error) {
		fd, offset, err = n.dev.RegionFile(index)
		return err
	})
	if err != nil {
		return -1, 0, err
	}
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || seals&regionSeals != regionSeals {
		return -1, 0, fmt.Errorf("%w: its file has seals %#x, want %#x", vfio.ErrNotMappable, seals, regionSeals)
	}
	// A hole in a file of huge pages cannot be filled if there are none left.
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil || fs.Type != unix.TMPFS_MAGIC {
		return -1, 0, fmt.Errorf("%w: its file is not made of normal pages", vfio.ErrNotMappable)
	}
	return fd, offset, nil
}

// access checks what can be checked without the device.
func (n *session) access(c protocol.Command, a protocol.RegionAccess, need vfio.RegionFlags) error {
	info, err := n.region(c, a.Region)
	if err != nil {
		return err
	}
	switch {
	case a.Count > serverMaxData:
		return protocol.Invalid(c, "count", a.Count, "want at most %#x", serverMaxData)
	case a.Offset > info.Size || uint64(a.Count) > info.Size-a.Offset:
		return protocol.Invalid(c, "offset", a.Offset, "region %d has %#x bytes, the access %#x", a.Region, info.Size, a.Count)
	case info.Flags&need == 0:
		return protocol.Invalid(c, "region", a.Region, "it allows only accesses %d", info.Flags)
	}
	return nil
}

func (n *session) regionRead(m *protocol.Message) (reply, error) {
	c := m.Header.Command
	a, err := protocol.DecodeRegionAccess(c, false, m.Payload)
	if err != nil {
		return reply{}, err
	}
	if err := n.access(c, a, vfio.RegionRead); err != nil {
		return reply{}, err
	}
	n.out = a.Append(n.out[:0])
	n.out = slices.Grow(n.out, int(a.Count))[:protocol.RegionAccessSize+int(a.Count)]
	data := n.out[protocol.RegionAccessSize:]
	// The device need not write all of it if it fails, or at all if it is empty.
	clear(data)
	err = n.call(func() error { return n.dev.ReadRegion(int(a.Region), a.Offset, data) })
	return reply{payload: n.out}, err
}

func (n *session) regionWrite(m *protocol.Message) (reply, error) {
	c := m.Header.Command
	a, err := protocol.DecodeRegionAccess(c, false, m.Payload)
	if err != nil {
		return reply{}, err
	}
	if err := n.access(c, a, vfio.RegionWrite); err != nil {
		return reply{}, err
	}
	if err := n.call(func() error { return n.dev.WriteRegion(int(a.Region), a.Offset, a.Data) }); err != nil {
		return reply{}, err
	}
	a.Data = nil
	n.out = a.Append(n.out[:0])
	return reply{payload: n.out}, nil
}
