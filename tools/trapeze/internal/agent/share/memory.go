package share

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/vfio"
)

// MapWindow is described at vfiouser.ServedDevice. The server calls MapFile instead.
func (p *Part) MapWindow(iova uint64, b []byte, flags vfio.DMAFlags) error {
	return fmt.Errorf("%w: memory without a file", vfio.ErrNotSupported)
}

// MapFile is described at vfiouser.FileDevice. The device has the memory at another bus address than the client says.
func (p *Part) MapFile(iova uint64, b []byte, flags vfio.DMAFlags, fd int, offset uint64) (err error) {
	if p.nic.isBroken() { // what it still knows at a bus address must not become this memory
		return vfio.ErrDeviceGone
	}
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	mem, err := vfio.MappedMemory(b, own, offset)
	w := &window{iova: iova, size: uint64(len(b)), flags: flags, mem: mem, fd: own}
	if err == nil {
		w.device, err = p.nic.nic.Share(mem, flags)
	}
	if err != nil {
		return errors.Join(err, unix.Close(own))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	at, _ := p.search(iova)
	p.windows = slices.Insert(p.windows, at, w)
	return nil
}

// search returns where the first window is that begins at an address or behind it. mu is held.
func (p *Part) search(iova uint64) (int, bool) {
	return slices.BinarySearchFunc(p.windows, iova, func(w *window, iova uint64) int { return cmp.Compare(w.iova, iova) })
}

// find returns the window that has all of size bytes at an address, nil if none has. mu is held.
func (p *Part) find(iova, size uint64, need vfio.DMAFlags) *window {
	at, exact := p.search(iova)
	if !exact {
		at--
	}
	if at < 0 {
		return nil
	}
	w := p.windows[at]
	if in := iova - w.iova; in >= w.size || size > w.size-in || w.flags&need != need {
		return nil
	}
	return w
}

// UnmapWindows is described at vfiouser.ServedDevice. If the device uses some of the memory, all that the client has
// of the device ends first: what the device knew at a bus address must not become another client's memory.
func (p *Part) UnmapWindows(first, last uint64) error {
	inside := func(w *window) bool { return w.iova >= first && w.iova+w.size-1 <= last }
	p.mu.Lock()
	used := slices.ContainsFunc(p.windows, func(w *window) bool { return inside(w) && w.users > 0 })
	p.mu.Unlock()
	var err error
	if used {
		err = p.stop()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var left []*window
	for _, w := range p.windows {
		if !inside(w) {
			left = append(left, w)
			continue
		}
		if failed := p.nic.nic.Unshare(w.mem, w.device); failed != nil {
			p.nic.broken(failed)
			err = errors.Join(err, failed)
		}
		err = errors.Join(err, w.mem.Close(), unix.Close(w.fd))
	}
	p.windows = left
	if p.admin.enabled && (p.find(p.admin.sqBase, 1, 0) == nil || p.find(p.admin.acqBase, 1, 0) == nil) {
		p.admin.enabled = false
	}
	return err
}
