package vfiouser

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser/internal/protocol"
)

// find returns region index.
func (d *client) find(index int) (*region, error) {
	if d.closed.Load() {
		return nil, vfio.ErrClosed
	}
	x := d.device.Load()
	if index < 0 || index >= len(x.regions) {
		return nil, fmt.Errorf("%w: index %d", vfio.ErrNoSuchRegion, index)
	}
	return &x.regions[index], nil
}

// part returns region index if it has size bytes at offset.
func (d *client) part(index int, offset, size uint64) (*region, error) {
	r, err := d.find(index)
	if err == nil && (offset > r.Size || size > r.Size-offset) {
		err = fmt.Errorf("%w: %d bytes at %#x, region %d has %#x", vfio.ErrOutOfRange, size, offset, index, r.Size)
	}
	return r, err
}

// Region is described at vfio.Device. A region that the server lets be mapped,
// but whose file it could cut off, is not shown as one that can be mapped unless
// ClientOptions.MapUnsealed says so.
func (d *client) Region(index int) (vfio.RegionInfo, error) {
	r, err := d.find(index)
	if err != nil {
		return vfio.RegionInfo{}, d.fail("describe region", err)
	}
	return r.RegionInfo, nil
}

func (d *client) ReadRegion(index int, offset uint64, p []byte) error {
	return d.ReadRegionContext(d.life, index, offset, p)
}

func (d *client) ReadRegionContext(ctx context.Context, index int, offset uint64, p []byte) error {
	const op = "read region"
	if _, err := d.part(index, offset, uint64(len(p))); err != nil {
		return d.fail(op, err)
	}
	const c = protocol.CommandRegionRead
	for len(p) > 0 {
		a := protocol.RegionAccess{Offset: offset, Region: uint32(index), Count: d.pieceOf(p)}
		b, err := d.ask(ctx, c, a.Append(nil))
		if err != nil {
			return d.fail(op, err)
		}
		got, err := protocol.DecodeRegionAccess(c, true, b)
		if err == nil && (got.Count != a.Count || got.Offset != a.Offset || got.Region != a.Region) {
			err = unsuitable(c, "count", uint64(got.Count), fmt.Sprintf("%#x bytes at %#x of region %d were asked for", a.Count, a.Offset, a.Region))
		}
		if err != nil {
			return d.fail(op, err)
		}
		copy(p, got.Data)
		offset, p = offset+uint64(a.Count), p[a.Count:]
	}
	return nil
}

func (d *client) WriteRegion(index int, offset uint64, p []byte) error {
	return d.WriteRegionContext(d.life, index, offset, p)
}

func (d *client) WriteRegionContext(ctx context.Context, index int, offset uint64, p []byte) error {
	const op = "write region"
	if _, err := d.part(index, offset, uint64(len(p))); err != nil {
		return d.fail(op, err)
	}
	const c = protocol.CommandRegionWrite
	for len(p) > 0 {
		n := d.pieceOf(p)
		a := protocol.RegionAccess{Offset: offset, Region: uint32(index), Count: n, Data: p[:n]}
		_, err := d.ask(ctx, c, a.Append(nil))
		if err != nil {
			return d.fail(op, err)
		}
		offset, p = offset+uint64(n), p[n:]
	}
	return nil
}

// pieceOf returns how much of p one message can carry. Pieces do not cut
// registers.
func (d *client) pieceOf(p []byte) uint32 {
	most := min(d.device.Load().capabilities.MaxDataXferSize, clientMaxData) &^ 7
	return uint32(min(uint64(len(p)), uint64(most)))
}

// mappedPart is a mapped part of a region.
type mappedPart struct {
	bytes  []byte
	index  int
	offset uint64
}

// MapRegion is described at vfio.Device. The mapping stays valid when the server
// is lost, and after Reset it is that of the new server.
func (d *client) MapRegion(index int, offset, size uint64) (*vfio.Mapping, error) {
	const op = "map region"
	d.mu.Lock()
	defer d.mu.Unlock()
	r, err := d.part(index, offset, size)
	if err != nil {
		return nil, d.fail(op, err)
	}
	err = r.CheckMap(offset, size)
	if err == nil && r.offset%uint64(os.Getpagesize()) != 0 {
		err = fmt.Errorf("%w: the region begins at %#x of its file", vfio.ErrMisaligned, r.offset)
	}
	switch {
	case errors.Is(err, vfio.ErrNotMappable) && r.unsealed && !d.unsealed:
		return nil, d.failHint(op, fmt.Errorf("%w: index %d, whose file the server could cut off", err, index),
			"if the server is trusted, open the device with the option unsealed=on")
	case err != nil:
		return nil, d.fail(op, fmt.Errorf("%w: %#x bytes at %#x of region %d, the parts are %v", err, size, offset, index, r.Sparse))
	}
	b, err := unix.Mmap(r.fd, int64(r.offset+offset), int(size), r.Protection(), unix.MAP_SHARED)
	if err != nil {
		return nil, d.fail(op, os.NewSyscallError("mmap", err))
	}
	m := &mappedPart{b, index, offset}
	d.mappings[m] = struct{}{}
	return vfio.NewMapping(b, func() error { return d.unmapRegion(m) }), nil
}

func (d *client) unmapRegion(m *mappedPart) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.mappings, m)
	return os.NewSyscallError("munmap", unix.Munmap(m.bytes))
}
