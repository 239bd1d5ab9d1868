package vfiouser

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/vfio/internal/ranges"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser/internal/protocol"
)

func (d *client) IOVARanges() ([]vfio.IOVARange, error) {
	if d.closed.Load() {
		return nil, d.fail("list IOVA ranges", vfio.ErrClosed)
	}
	return vfio.PlainIOVAs(), nil
}

// MapDMA is described at vfio.Device. The server gets the memory's file.
func (d *client) MapDMA(mem *vfio.Memory, iova uint64, flags vfio.DMAFlags) error {
	const op = "map DMA"
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed.Load() {
		return d.fail(op, vfio.ErrClosed)
	}
	pages := d.device.Load().capabilities.PageSizes
	hint, err := vfio.CheckDMA(mem, iova, flags, vfio.PlainIOVAs(), pages&-pages) // the smallest size is the lowest bit
	if err != nil {
		return d.failHint(op, err, hint)
	}
	if mem.FD() < 0 {
		return d.failHint(op, fmt.Errorf("%w: the server is another process, and needs the file behind the memory", vfio.ErrNotSupported),
			"use memory from vfio.AllocMemory")
	}
	m := &dmaMapping{iova: iova, size: mem.Size(), mem: mem, flags: flags}
	if len(d.dma.list.Within(iova, m.Last())) > 0 {
		return d.fail(op, fmt.Errorf("%w: %#x to %#x", vfio.ErrIOVAInUse, iova, m.Last()))
	}
	if err := mapDMA(d.life, d.link.Load(), m); err != nil {
		var refused *ServerError
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

// mapDMA tells the server of a mapping. The server cannot seal the file in a way
// that it, or its successor, could not map it any more.
func mapDMA(ctx context.Context, l *link, m *dmaMapping) error {
	// This fails if it has been sealed before.
	_, _ = unix.FcntlInt(uintptr(m.mem.FD()), unix.F_ADD_SEALS, unix.F_SEAL_SEAL)
	request := protocol.DMAMap{Flags: m.flags, Address: m.iova, Size: m.size}
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
	if m := d.dma.list.Within(iova, iova); len(m) == 0 || m[0].iova != iova || m[0].size != size {
		return d.failHint(op, fmt.Errorf("%w: %#x bytes at %#x", vfio.ErrNotMapped, size, iova), "unmap exactly what one MapDMA mapped")
	}
	_, err := d.ask(d.life, protocol.CommandDMAUnmap, protocol.NewDMAUnmap(iova, size).Append(nil))
	if err != nil && !d.link.Load().lost() {
		return d.fail(op, err)
	}
	d.dma.remove(iova, iova)
	return nil
}

// dmaMapping is memory that the device may access.
type dmaMapping struct {
	iova, size uint64
	mem        *vfio.Memory
	flags      vfio.DMAFlags
}

// First and Last are the first and the last address.
func (m *dmaMapping) First() uint64 { return m.iova }
func (m *dmaMapping) Last() uint64  { return m.iova + (m.size - 1) }

// dmaTable holds the mappings by iova. To change it takes both client.mu and mu.
type dmaTable struct {
	mu   sync.RWMutex
	list ranges.Table[*dmaMapping]
}

func (t *dmaTable) add(m *dmaMapping) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.list.Insert(m)
}

// remove removes the mappings from first to last.
func (t *dmaTable) remove(first, last uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.list.Remove(first, last)
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
	for n > 0 {
		found := t.list.Within(iova, iova)
		if len(found) == 0 {
			return nil, fmt.Errorf("%w: IOVA %#x: %w", vfio.ErrNotMapped, iova, unix.EFAULT)
		}
		m := found[0]
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
