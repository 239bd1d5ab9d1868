package vfiouser

import (
	"errors"
	"math"

	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser/internal/dmaspace"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser/internal/protocol"
)

func (n *session) dmaMap(m *protocol.Message) (reply, error) {
	d, err := protocol.DecodeDMAMap(m.Payload)
	if err != nil {
		return reply{}, err
	}
	fd := -1
	if len(m.FDs) == 1 {
		fd = m.FDs[0]
	}
	r := dmaspace.Range{Address: d.Address, Size: d.Size, Offset: d.Offset, Flags: d.Flags}
	window, known, err := n.memory.space.Map(r, fd)
	if err != nil {
		n.warnUnmappable(d, err)
		return reply{}, err
	}
	n.countMemory()
	switch {
	case known:
		return reply{}, nil
	case window == nil:
		n.warnUnreachable(d)
		return reply{}, nil
	}
	n.memory.shares = true
	err = n.call(func() error { return n.dev.MapWindow(r.Address, window, r.Flags) })
	if err != nil {
		// Exactly this range can be taken back.
		_ = n.memory.space.Unmap(r.Address, r.Address+(r.Size-1))
		n.countMemory()
	}
	return reply{}, err
}

// warnUnmappable tells the operator, once, why DMA will fail: the client sends a
// file that is not suitable.
func (n *session) warnUnmappable(d protocol.DMAMap, err error) {
	if n.memory.warnedFile || !errors.Is(err, dmaspace.ErrFile) {
		return
	}
	n.memory.warnedFile = true
	n.log.Warn("vfio-user: client's memory cannot be mapped", "address", d.Address, "size", d.Size, "error", err,
		"hint", "DMA memory is to be in a file in memory: memfd, /dev/shm or hugetlbfs")
}

// warnUnreachable does the same for a client that shares no memory at all. Some
// comes without a file in any case: firmware, which is read only, and the BARs
// of other devices.
func (n *session) warnUnreachable(d protocol.DMAMap) {
	if n.memory.warnedShare || n.memory.shares || d.Flags&vfio.DMAWrite == 0 {
		return
	}
	n.memory.warnedShare = true
	n.log.Warn("vfio-user: client has memory that it does not share; DMA to it will fail", "address", d.Address, "size", d.Size,
		"hint", "for QEMU: -object memory-backend-memfd,id=mem,size=...,share=on -machine memory-backend=mem")
}

// dmaUnmap behaves as the kernel's VFIO does (type 1 IOMMU, version 2), because
// QEMU counts on it: it unmaps what lies in the range, be it nothing. libvfio-user
// answers ENOENT then.
func (n *session) dmaUnmap(m *protocol.Message) (reply, error) {
	d, err := protocol.DecodeDMAUnmap(m.Payload)
	if err != nil {
		return reply{}, err
	}
	first, last := d.Address, d.Address+(d.Size-1)
	if d.All {
		first, last = 0, math.MaxUint64
	} else if d.Address%dmaspace.PageSize != 0 || d.Size%dmaspace.PageSize != 0 {
		return reply{}, vfio.ErrMisaligned
	}
	_, bytes, memory, err := n.memory.space.Inside(first, last)
	if err != nil {
		return reply{}, err
	}
	if memory > 0 {
		if err := n.call(func() error { return n.dev.UnmapWindows(first, last) }); err != nil {
			return reply{}, err
		}
	}
	if err := n.memory.space.Unmap(first, last); err != nil {
		return reply{}, err
	}
	n.countMemory()
	d.Size = bytes
	n.memory.out = d.Append(n.memory.out[:0])
	return reply{payload: n.memory.out}, nil
}

// countMemory keeps the statistics.
func (n *session) countMemory() {
	ranges, files := n.memory.space.Size()
	n.server.stats.ranges.Store(int64(ranges))
	n.server.stats.files.Store(int64(files))
}
