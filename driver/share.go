package driver

import (
	"context"
	"fmt"
	"slices"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
)

// This file has what VIA's kernel agent needs: a program that owns the NIC and has others use
// parts of it. The agent says what each may do; nothing here checks it.

// Execute carries out a command for a program that shares the NIC, and returns the reply. The
// driver gives it an ID. A command that the device refuses fails with a *CommandError. One that
// waits for the network is aborted when ctx ends, and fails with the context's error.
func (n *NIC) Execute(ctx context.Context, cmd datasheet.Command) (*datasheet.AdminEntry, error) {
	return get(ctx, n.do, "execute "+cmd.Opcode.String(), func() (*datasheet.AdminEntry, error) {
		if c, ok := waits[cmd.Opcode]; ok {
			return n.connect(ctx, c, &cmd)
		}
		return n.execute(ctx, &cmd)
	})
}

// waits has the commands that wait for the network.
var waits = map[datasheet.Opcode]class{
	datasheet.OpConnectWait: classWait, datasheet.OpConnectAccept: classAccept, datasheet.OpConnectRequest: classRequest,
}

// Doorbell returns a function that stores to the doorbell at an offset of BAR2. What the caller has
// read from memory before is seen by the device. It is for one goroutine, and not to be
// called once Close has begun. It fails with vfio.ErrOutOfRange or vfio.ErrMisaligned.
func (n *NIC) Doorbell(offset uint64) (func(value uint32) error, error) {
	const op = "find doorbell"
	switch {
	case offset >= (uint64(n.identity.MaxEndpoints)+uint64(n.identity.MaxCQs))*datasheet.PageSize:
		return nil, n.error(op, fmt.Errorf("%w: %#x", vfio.ErrOutOfRange, offset))
	case offset%4 != 0:
		return nil, n.error(op, fmt.Errorf("%w: %#x", vfio.ErrMisaligned, offset))
	}
	b := n.doorbellAt(offset)
	return b.ring, nil
}

// Share lets the device access memory of a program that shares the NIC, and returns its bus address.
// It fails with ErrNotSupported without an IOMMU, where a program could have the device access all memory.
func (n *NIC) Share(mem *vfio.Memory, flags vfio.DMAFlags) (iova uint64, err error) {
	return get(n.background, n.do, "share memory", func() (uint64, error) {
		if n.physical != nil {
			return 0, fmt.Errorf("%w: there is no IOMMU", descriptors.ErrNotSupported)
		}
		return n.mapDMA(n.background, mem, flags)
	})
}

// Unshare ends what Share has begun. The device must have said that it does not use the memory any
// more; if it has failed, the bus address is not used again.
func (n *NIC) Unshare(mem *vfio.Memory, iova uint64) error {
	return n.doAny(n.background, "unshare memory", func() error {
		if err := n.dev.UnmapDMA(iova, mem.Size()); err != nil || n.failed() != nil {
			return err
		}
		return n.displace(iova, mem)
	})
}

// OnInterrupt has f called at each interrupt of one of the NIC's vectors, until leave is called, and returns
// the number of that vector: datasheet.NoVector if there is none. f returns at once. Other queues
// may use the vector too.
func (n *NIC) OnInterrupt(f func()) (vector uint16, leave func()) {
	v := n.pickVector()
	if v == nil {
		return datasheet.NoVector, func() {}
	}
	v.interrupted(n)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.calls = append(slices.Clone(v.calls), &f)
	return v.number, func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.calls = slices.DeleteFunc(slices.Clone(v.calls), func(g *func()) bool { return g == &f })
	}
}
