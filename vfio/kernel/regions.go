package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/round"
	"github.com/trapeze-nic/trapeze/vfio"
)

// region is a region and where the descriptor has it.
type region struct {
	vfio.RegionInfo
	offset uint64
}

// askRegion asks the kernel what a region is. One that the function does not
// have is of size 0.
func (d *Device) askRegion(index int) (region, error) {
	info := regionInfo{index: uint32(index)}
	b, err := askWithCaps(sized(&info), func(b []byte) error {
		_, err := d.host.sys.ioctl(d.fd, vfioDeviceGetRegionInfo, b)
		return err
	})
	if errors.Is(err, unix.EINVAL) { // such as VGA where that is not compiled in
		return region{RegionInfo: vfio.RegionInfo{Index: index}}, nil
	}
	if err != nil {
		return region{}, err
	}
	return parseRegion(index, b)
}

// parseRegion reads a vfio_region_info with its capabilities.
func parseRegion(index int, b []byte) (region, error) {
	info, ok := load[regionInfo](b)
	if !ok {
		return region{}, fmt.Errorf("%w: %d bytes", errBadAnswer, len(b))
	}
	const known = vfio.RegionRead | vfio.RegionWrite | vfio.RegionMmap
	r := region{offset: info.offset, RegionInfo: vfio.RegionInfo{
		Index: index, Size: info.size, Flags: vfio.RegionFlags(info.flags) & known}}
	// Offsets into the file are signed.
	if r.Size > 1<<62 || r.offset > 1<<62 {
		return r, fmt.Errorf("%w: %#x bytes at %#x", errBadAnswer, r.Size, r.offset)
	}
	if info.flags&regionFlagCaps == 0 {
		return r, nil
	}
	err := walkCaps(b, info.capOffset, func(h capHeader, body []byte) error {
		switch h.id {
		case regionCapMSIX:
			r.MSIXMappable = true
		case regionCapSparseMmap:
			list, err := rangesCap(body)
			if err != nil {
				return err
			}
			for _, a := range list {
				if a[1] == 0 {
					continue
				}
				if a[0] > r.Size || a[1] > round.Up(r.Size, uint64(os.Getpagesize()))-a[0] {
					return fmt.Errorf("%w: %#x mappable bytes at %#x of %#x", errBadAnswer, a[1], a[0], r.Size)
				}
				r.Sparse = append(r.Sparse, vfio.Area{Offset: a[0], Size: a[1]})
			}
			slices.SortFunc(r.Sparse, func(a, b vfio.Area) int { return cmp.Compare(a.Offset, b.Offset) })
			// A list without entries says that nothing can be mapped.
			if len(r.Sparse) == 0 {
				r.Flags &^= vfio.RegionMmap
			}
		}
		return nil
	})
	return r, err
}

// Region describes a region.
func (d *Device) Region(index int) (vfio.RegionInfo, error) {
	done, err := d.use("describe region of")
	if err != nil {
		return vfio.RegionInfo{}, err
	}
	defer done()
	r, err := d.region(fmt.Sprintf("describe region %d of", index), index)
	if err != nil {
		return vfio.RegionInfo{}, err
	}
	info := r.RegionInfo
	info.Sparse = slices.Clone(info.Sparse)
	return info, nil
}

func (d *Device) region(op string, index int) (*region, error) {
	if index < 0 || index >= len(d.regions) {
		return nil, d.fail(op, fmt.Errorf("%w: there are %d", vfio.ErrNoSuchRegion, len(d.regions)), "")
	}
	return &d.regions[index], nil
}

// ReadRegion reads from a region through the kernel, which takes accesses that
// are as wide as the alignment of offset and length allows.
func (d *Device) ReadRegion(index int, offset uint64, p []byte) error {
	done, err := d.use("read")
	if err != nil {
		return err
	}
	defer done()
	return d.readRegion(index, offset, p)
}

func (d *Device) readRegion(index int, offset uint64, p []byte) error {
	return d.access("read", index, offset, p, vfio.RegionRead, d.host.sys.read)
}

// WriteRegion writes to a region through the kernel.
func (d *Device) WriteRegion(index int, offset uint64, p []byte) error {
	done, err := d.use("write")
	if err != nil {
		return err
	}
	defer done()
	return d.writeRegion(index, offset, p)
}

func (d *Device) writeRegion(index int, offset uint64, p []byte) error {
	return d.access("write", index, offset, p, vfio.RegionWrite, d.host.sys.write)
}

// access reads or writes all of p.
func (d *Device) access(verb string, index int, offset uint64, p []byte, need vfio.RegionFlags,
	call func(int, []byte, int64) (int, error)) error {
	op := fmt.Sprintf("%s %d bytes at %#x of region %d of", verb, len(p), offset, index)
	r, err := d.region(op, index)
	switch {
	case err != nil:
		return err
	case offset > r.Size || uint64(len(p)) > r.Size-offset:
		return d.fail(op, vfio.ErrOutOfRange, fmt.Sprintf("the region has %#x bytes", r.Size))
	case len(p) > 0 && r.Flags&need == 0:
		return d.fail(op, fmt.Errorf("%w: the region cannot be %s", vfio.ErrNotSupported, map[string]string{"read": "read", "write": "written"}[verb]), "")
	}
	for at := 0; at < len(p); {
		n, err := call(d.fd, p[at:], int64(r.offset+offset)+int64(at))
		if err == nil && n <= 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return d.fail(op, err, d.hintAccess(index, err))
		}
		at += n
	}
	return nil
}

func (d *Device) hintAccess(index int, err error) string {
	if !errors.Is(err, unix.EIO) || index == vfio.RegionConfig {
		return ""
	}
	return "memory decode is off (vfio.CommandMemory) or the device is asleep; " + d.host.hostHint(d.fn.Address)
}

// MapRegion maps a part of a region. Of a region whose size is no multiple of
// the page size the last page can be mapped too. It turns memory decode on: an
// access while that is off would kill the process.
func (d *Device) MapRegion(index int, offset, size uint64) (*vfio.Mapping, error) {
	op := fmt.Sprintf("map %#x bytes at %#x of region %d of", size, offset, index)
	done, err := d.use(op)
	if err != nil {
		return nil, err
	}
	defer done()
	r, err := d.region(op, index)
	if err != nil {
		return nil, err
	}
	if err := r.CheckMap(offset, size); err != nil {
		return nil, d.fail(op, err, r.hintMap())
	}
	if err := d.setCommand(vfio.CommandMemory, 0); err != nil {
		return nil, err
	}
	b, err := d.host.sys.mmap(d.fd, int64(r.offset+offset), int(size), r.Protection())
	if err != nil {
		return nil, d.fail(op, fmt.Errorf("%w: %w", vfio.ErrNotMappable, err), r.hintMap())
	}
	return d.track(b), nil
}

// track makes a Mapping that Close and revoke know of.
func (d *Device) track(b []byte) *vfio.Mapping {
	var m *vfio.Mapping
	m = vfio.NewMapping(b, func() error {
		d.mapMu.Lock()
		defer d.mapMu.Unlock()
		delete(d.maps, m)
		return d.host.sys.munmap(b)
	})
	d.mapMu.Lock()
	defer d.mapMu.Unlock()
	d.maps[m] = b
	return m
}

// unmapRegions unmaps all regions. Mappings know that they are closed then.
func (d *Device) unmapRegions() error {
	d.mapMu.Lock()
	maps := slices.Collect(maps.Keys(d.maps))
	d.mapMu.Unlock()
	var errs []error
	for _, m := range maps {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}

// blindRegions puts all ones in the place of all regions. Mappings stay open.
func (d *Device) blindRegions() error {
	d.mapMu.Lock()
	defer d.mapMu.Unlock()
	var errs []error
	for _, b := range d.maps {
		errs = append(errs, d.host.sys.blind(b))
	}
	return errors.Join(errs...)
}

// hintMap says what can be mapped.
func (r *region) hintMap() string {
	switch {
	case r.Flags&vfio.RegionMmap == 0:
		return fmt.Sprintf("nothing of its %#x bytes can be mapped: use ReadRegion and WriteRegion", r.Size)
	case len(r.Sparse) == 0:
		return fmt.Sprintf("whole pages of its %#x bytes can be mapped", r.Size)
	}
	hint := "what can be mapped:"
	for _, a := range r.Sparse {
		hint += fmt.Sprintf(" %#x to %#x", a.Offset, a.Offset+a.Size-1)
	}
	return hint + "; use ReadRegion and WriteRegion elsewhere (the MSI-X table may be there)"
}
