package vfiouser

import (
	"context"
	"fmt"
	"net"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/memfile"
	"github.com/trapeze-nic/trapeze/internal/passedfd"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser/internal/dmaspace"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser/internal/protocol"
)

// description has a server's answers about its device.
type description struct {
	info         vfio.Info
	capabilities protocol.Capabilities
	regions      []region
	irqs         []vfio.IRQInfo
}

// region is a region with the file behind it.
type region struct {
	vfio.RegionInfo
	fd int // -1: none that can be mapped
	// unsealed: there was one, which the server could cut off.
	unsealed bool
	offset   uint64
}

// close gives the files back.
func (x *description) close() {
	for i := range x.regions {
		r := &x.regions[i]
		if r.fd >= 0 {
			_ = unix.Close(r.fd)
		}
		r.fd = -1
	}
}

// sameAs reports whether two descriptions are of the same kind of device. Some
// servers count the VGA region, which a NIC does not have, and others do not.
func (x *description) sameAs(y *description) bool {
	return x.info.Resettable == y.info.Resettable && slices.Equal(x.irqs, y.irqs) &&
		slices.EqualFunc(x.withoutEmpty(), y.withoutEmpty(), func(a, b region) bool {
			return a.Size == b.Size && a.Flags == b.Flags && (a.Sparse == nil) == (b.Sparse == nil) && slices.Equal(a.Sparse, b.Sparse)
		})
}

// withoutEmpty returns the regions up to the last that is not empty.
func (x *description) withoutEmpty() []region {
	r := x.regions
	for len(r) > 0 && r[len(r)-1].Size == 0 {
		r = r[:len(r)-1]
	}
	return r
}

// greet agrees with the server on a version and asks it about its device.
func (d *client) greet(ctx context.Context, c *net.UnixConn) (_ *link, _ *description, err error) {
	conn := protocol.NewConn(c, clientMaxPayload, clientMaxFDs)
	l := newLink(conn, d.timeout, &d.stats.sent, d.serve, d.events.wake)
	x := &description{}
	defer func() {
		if err != nil {
			l.fail(err)
			<-l.done
			x.close()
		}
	}()
	g := greeting{ctx, l, d.unsealed}
	if x.capabilities, err = g.version(); err != nil {
		return nil, nil, err
	}
	if x.info, err = g.deviceInfo(); err != nil {
		return nil, nil, err
	}
	for i := range x.info.Regions {
		r, err := g.region(uint32(i))
		if err != nil {
			return nil, nil, err
		}
		x.regions = append(x.regions, r)
	}
	for i := range x.info.IRQs {
		q, err := g.irq(uint32(i))
		if err != nil {
			return nil, nil, err
		}
		x.irqs = append(x.irqs, q)
	}
	return l, x, nil
}

// greeting is the part of a connection in which the device is found out about.
type greeting struct {
	ctx  context.Context
	link *link
	// unsealed: files that the server can cut off are good enough.
	unsealed bool
}

// ask sends a request whose reply has no file descriptors.
func (g greeting) ask(c protocol.Command, payload []byte) ([]byte, error) {
	return g.link.ask(g.ctx, c, payload)
}

func unsuitable(c protocol.Command, field string, value uint64, why string) error {
	return &protocol.Error{Message: c.String(), Field: field, Value: value, Why: why, Errno: unix.EPROTO}
}

func (g greeting) version() (protocol.Capabilities, error) {
	const c = protocol.CommandVersion
	request, err := protocol.Version{Major: protocol.Major, Minor: protocol.Minor, Capabilities: protocol.Capabilities{
		MaxMsgFDs: clientMaxFDs, MaxDataXferSize: clientMaxData,
		MaxDMAMaps: protocol.DefaultCapabilities().MaxDMAMaps, PageSizes: dmaspace.PageSize}}.Append(nil)
	if err != nil {
		return protocol.Capabilities{}, err
	}
	p, err := g.ask(c, request)
	if err != nil {
		return protocol.Capabilities{}, err
	}
	v, err := protocol.DecodeVersion(p)
	if err != nil {
		return protocol.Capabilities{}, err
	}
	if v.Minor > protocol.Minor {
		return protocol.Capabilities{}, unsuitable(c, "minor", uint64(v.Minor), "it is more than was offered")
	}
	return v.Capabilities, nil
}

func (g greeting) deviceInfo() (vfio.Info, error) {
	const c = protocol.CommandDeviceInfo
	p, err := g.ask(c, protocol.DeviceInfo{Argsz: protocol.DeviceInfoSize}.Append(nil))
	if err != nil {
		return vfio.Info{}, err
	}
	m, err := protocol.DecodeDeviceInfo(p)
	switch {
	case err != nil:
		return vfio.Info{}, err
	case m.Flags&protocol.DevicePCI == 0:
		return vfio.Info{}, unsuitable(c, "flags", uint64(m.Flags), "it is no PCI device")
	case m.Regions <= vfio.RegionConfig || m.Regions > maxIndexes:
		return vfio.Info{}, unsuitable(c, "num_regions", uint64(m.Regions), fmt.Sprintf("want %d to %d", vfio.RegionConfig+1, maxIndexes))
	case m.IRQs > maxIndexes:
		return vfio.Info{}, unsuitable(c, "num_irqs", uint64(m.IRQs), fmt.Sprintf("want at most %d", maxIndexes))
	}
	return vfio.Info{Resettable: m.Flags&protocol.DeviceReset != 0, Regions: int(m.Regions), IRQs: int(m.IRQs)}, nil
}

// firstRoom is the room offered first for the description of a region, in
// bytes, maxRoom what is offered when the server asks for more.
const (
	firstRoom = 256
	maxRoom   = 64 << 10
)

func (g greeting) region(index uint32) (region, error) {
	const c = protocol.CommandRegionInfo
	var m protocol.RegionInfo
	var fds []int
	for room := uint32(firstRoom); ; room = m.Argsz {
		// The request's size is that without capabilities.
		p, got, err := g.link.do(g.ctx, c, protocol.RegionInfo{Argsz: room, Index: index}.Append(nil, 0))
		if err != nil {
			return region{}, err
		}
		fds = got
		m, err = protocol.DecodeRegionInfoReply(p)
		if err == nil && m.Index != index {
			err = unsuitable(c, "index", uint64(m.Index), "another region was asked for")
		}
		if err == nil && m.Argsz > maxRoom {
			err = unsuitable(c, "argsz", uint64(m.Argsz), fmt.Sprintf("want at most %#x", maxRoom))
		}
		if err != nil {
			passedfd.Close(fds...)
			return region{}, err
		}
		if m.Argsz <= room {
			break
		}
		passedfd.Close(fds...)
	}
	r := region{RegionInfo: vfio.RegionInfo{Index: int(index), Size: m.Size,
		Flags: m.Flags & (vfio.RegionRead | vfio.RegionWrite)}, fd: -1}
	offered := m.Flags&vfio.RegionMmap != 0 && len(fds) == 1
	r.unsealed = offered && !sealed(fds[0])
	if offered && (!r.unsealed || g.unsealed) && longEnough(fds[0], m.Offset, m.Size) {
		r.fd, r.offset = fds[0], m.Offset
		r.Sparse = m.Sparse
		if m.Sparse == nil || len(m.Sparse) > 0 {
			r.Flags |= vfio.RegionMmap
		}
	} else {
		passedfd.Close(fds...)
	}
	return r, nil
}

// sealed reports whether a server's file is memory and stays as long as it is.
// Without that the region is accessed by messages, unless the server is trusted.
func sealed(fd int) bool {
	var fs unix.Statfs_t
	// A hole in a file of huge pages cannot be filled if there are none left.
	return passedfd.IsMemory(fd) && unix.Fstatfs(fd, &fs) == nil && fs.Type == unix.TMPFS_MAGIC &&
		memfile.Seal(fd, unix.F_SEAL_SHRINK) == nil
}

// longEnough reports whether a file that is sealed, or a trusted server's, holds a
// region.
func longEnough(fd int, offset, size uint64) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && st.Size >= 0 && offset+size <= uint64(st.Size)
}

func (g greeting) irq(index uint32) (vfio.IRQInfo, error) {
	const c = protocol.CommandIRQInfo
	p, err := g.ask(c, protocol.IRQInfo{Argsz: protocol.IRQInfoSize, Index: index}.Append(nil))
	if err != nil {
		return vfio.IRQInfo{}, err
	}
	m, err := protocol.DecodeIRQInfo(p)
	switch {
	case err != nil:
		return vfio.IRQInfo{}, err
	case m.Index != index:
		return vfio.IRQInfo{}, unsuitable(c, "index", uint64(m.Index), "another index was asked for")
	case m.Count > maxVectors:
		return vfio.IRQInfo{}, unsuitable(c, "count", uint64(m.Count), fmt.Sprintf("want at most %d", maxVectors))
	}
	return vfio.IRQInfo{Index: int(index), Count: int(m.Count), Flags: vfio.IRQFlags(m.Flags)}, nil
}

// maxVectors is the greatest number of MSI-X vectors of a PCI function (PCI 3.0, 6.8.2).
const maxVectors = 2048
