package vfiouser

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser/internal/protocol"
)

// clientIOVAs are the bus addresses that a client uses. A server takes any; with
// these, what works here works behind the least IOMMU that is found, with 39
// bits of address and without what are interrupts on x86 (Intel SDM vol. 3,
// 11.11.1).
var clientIOVAs = []vfio.IOVARange{
	{First: 0x1000, Last: 0xfedfffff},
	{First: 0xfef00000, Last: 1<<39 - 1},
}

// IOVARanges is described at vfio.Device.
func (d *client) IOVARanges() ([]vfio.IOVARange, error) {
	if d.closed.Load() {
		return nil, d.fail("list IOVA ranges", vfio.ErrClosed)
	}
	return slices.Clone(clientIOVAs), nil
}

// MapDMA is described at vfio.Device. The server gets the memory's file.
func (d *client) MapDMA(mem *vfio.Memory, iova uint64, flags vfio.DMAFlags) error {
	const op = "map DMA"
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed.Load() {
		return d.fail(op, vfio.ErrClosed)
	}
	if mem == nil || mem.Address() == 0 {
		return d.failHint(op, vfio.ErrNoDMAMemory, "the memory has been closed")
	}
	if mem.FD() < 0 {
		return d.failHint(op, fmt.Errorf("%w: the server is another process, and needs the file behind the memory", vfio.ErrNotSupported),
			"use memory from vfio.AllocMemory")
	}
	if flags&(vfio.DMARead|vfio.DMAWrite) == 0 || flags&^(vfio.DMARead|vfio.DMAWrite) != 0 {
		return d.failHint(op, fmt.Errorf("%w: flags %#x", vfio.ErrNotSupported, uint32(flags)), "use DMARead, DMAWrite or both")
	}
	m := dmaMapping{iova: iova, size: mem.Size(), mem: mem, flags: flags}
	if err := d.checkIOVA(m); err != nil {
		return d.fail(op, err)
	}
	if err := mapDMA(d.life, d.link.Load(), m); err != nil {
		var refused *ServerError
		hint := ""
		if errors.As(err, &refused) {
			switch refused.Errno {
			case unix.EEXIST:
				err = fmt.Errorf("%w: %w", vfio.ErrIOVAInUse, err)
			case unix.ENOSPC:
				hint = "the server's limit is reached: map fewer and larger pieces"
			}
		}
		return d.failHint(op, err, hint)
	}
	d.dma.add(m)
	return nil
}

// checkIOVA checks a new mapping. mu is held.
func (d *client) checkIOVA(m dmaMapping) error {
	x := d.device.Load()
	// The smallest page size is the lowest bit.
	page := x.capabilities.PageSizes & -x.capabilities.PageSizes
	if m.iova%page != 0 || m.size%page != 0 {
		return fmt.Errorf("%w: %#x bytes at IOVA %#x, pages have %d", vfio.ErrMisaligned, m.size, m.iova, page)
	}
	last := m.iova + (m.size - 1)
	if !slices.ContainsFunc(clientIOVAs, func(r vfio.IOVARange) bool { return m.iova >= r.First && last <= r.Last && last >= m.iova }) {
		return fmt.Errorf("%w: %#x bytes at %#x, the ranges are %#x", vfio.ErrIOVARange, m.size, m.iova, clientIOVAs)
	}
	if d.dma.overlaps(m) {
		return fmt.Errorf("%w: %#x to %#x", vfio.ErrIOVAInUse, m.iova, last)
	}
	return nil
}

// mapDMA tells the server of a mapping. The server cannot seal the file in a way
// that it, or its successor, could not map it any more.
func mapDMA(ctx context.Context, l *link, m dmaMapping) error {
	// This fails if it has been sealed before.
	_, _ = unix.FcntlInt(uintptr(m.mem.FD()), unix.F_ADD_SEALS, unix.F_SEAL_SEAL)
	request := protocol.DMAMap{Flags: protocol.DMAFlags(m.flags), Address: m.iova, Size: m.size}
	_, err := l.ask(ctx, protocol.CommandDMAMap, request.Append(nil), m.mem.FD())
	return err
}

// UnmapDMA is described at vfio.Device. If the server is lost there is nothing
// to tell it, and that is no error.
func (d *client) UnmapDMA(iova, size uint64) error {
	const op = "unmap DMA"
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed.Load() {
		return d.fail(op, vfio.ErrClosed)
	}
	if !d.dma.has(iova, size) {
		return d.failHint(op, fmt.Errorf("%w: %#x bytes at %#x", vfio.ErrNotMapped, size, iova), "unmap exactly what one MapDMA mapped")
	}
	_, err := d.ask(d.life, protocol.CommandDMAUnmap, protocol.NewDMAUnmap(iova, size).Append(nil))
	if err != nil && !d.link.Load().lost() {
		return d.fail(op, err)
	}
	d.dma.remove(iova)
	return nil
}

// dmaMapping is memory that the device may access.
type dmaMapping struct {
	iova, size uint64
	mem        *vfio.Memory
	flags      vfio.DMAFlags
}

// dmaTable holds the mappings by iova.
type dmaTable struct {
	mu   sync.RWMutex
	list []dmaMapping
}

// search returns the index of the first mapping that ends after iova.
func (t *dmaTable) search(iova uint64) int {
	i, _ := slices.BinarySearchFunc(t.list, iova, func(m dmaMapping, iova uint64) int {
		if m.iova+m.size <= iova {
			return -1
		}
		return 1
	})
	return i
}

func (t *dmaTable) overlaps(m dmaMapping) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	i := t.search(m.iova)
	return i < len(t.list) && t.list[i].iova < m.iova+m.size
}

func (t *dmaTable) add(m dmaMapping) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i, _ := slices.BinarySearchFunc(t.list, m.iova, func(a dmaMapping, iova uint64) int { return cmp.Compare(a.iova, iova) })
	t.list = slices.Insert(t.list, i, m)
}

// has reports whether exactly one mapping has that address and size.
func (t *dmaTable) has(iova, size uint64) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	i := t.search(iova)
	return i < len(t.list) && t.list[i].iova == iova && t.list[i].size == size
}

func (t *dmaTable) remove(iova uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := t.search(iova)
	t.list = slices.Delete(t.list, i, i+1)
}

func (t *dmaTable) all() []dmaMapping {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.Clone(t.list)
}

func (t *dmaTable) clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.list = nil
}

// access calls f with the memory of n bytes at iova, piece by piece, if all of
// it is mapped and need allows it.
func (t *dmaTable) access(iova, n uint64, need vfio.DMAFlags, f func(b []byte)) error {
	t.mu.RLock()
	defer t.mu.RUnlock()
	pieces, err := t.pieces(iova, n, need)
	if err != nil {
		return err
	}
	for _, b := range pieces {
		f(b)
	}
	return nil
}

// pieces finds the memory of n bytes at iova. mu is held.
func (t *dmaTable) pieces(iova, n uint64, need vfio.DMAFlags) ([][]byte, error) {
	var pieces [][]byte
	for i := t.search(iova); n > 0; i++ {
		if i == len(t.list) || iova < t.list[i].iova {
			return nil, fmt.Errorf("%w: IOVA %#x: %w", vfio.ErrNotMapped, iova, unix.EFAULT)
		}
		m := &t.list[i]
		if m.flags&need == 0 {
			return nil, fmt.Errorf("IOVA %#x: %w", iova, unix.EPERM)
		}
		b := m.mem.Bytes()
		if len(b) == 0 {
			return nil, fmt.Errorf("IOVA %#x: %w", iova, unix.EFAULT) // closed too early
		}
		b = b[iova-m.iova:]
		b = b[:min(uint64(len(b)), n)]
		pieces = append(pieces, b)
		iova, n = iova+uint64(len(b)), n-uint64(len(b))
	}
	return pieces, nil
}

// serve carries out a request of the server: DMA to memory that it could not or
// would not map.
func (d *client) serve(m *protocol.Message) (reply, error) {
	d.stats.requests.Add(1)
	c := m.Header.Command
	switch {
	case c != protocol.CommandDMARead && c != protocol.CommandDMAWrite:
		return reply{}, &protocol.Error{Message: "header", Field: "command", Value: uint64(c), Why: "a server does not send it", Errno: unix.ENOSYS}
	case len(m.FDs) != 0:
		return reply{}, protocol.Invalid(c, "number of file descriptors", len(m.FDs), "want none")
	}
	a, err := protocol.DecodeDMAAccess(c, false, m.Payload)
	if err != nil {
		return reply{}, err
	}
	if a.Count > clientMaxData {
		return reply{}, &protocol.Error{Message: c.String(), Field: "count", Value: a.Count, Why: fmt.Sprintf("want at most %#x", clientMaxData), Errno: unix.E2BIG}
	}
	if c == protocol.CommandDMAWrite {
		data := a.Data
		err := d.dma.access(a.Address, a.Count, vfio.DMAWrite, func(b []byte) { data = data[copy(b, data):] })
		return reply{payload: protocol.DMAAccess{Address: a.Address, Count: a.Count}.Append(nil)}, err
	}
	a.Data = make([]byte, 0, a.Count)
	err = d.dma.access(a.Address, a.Count, vfio.DMARead, func(b []byte) { a.Data = append(a.Data, b...) })
	return reply{payload: a.Append(nil)}, err
}
