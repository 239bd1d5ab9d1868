package driver

import (
	"context"
	"errors"

	"github.com/trapeze-nic/trapeze/vfio"
)

// dmaBuffer is memory that the device can reach.
type dmaBuffer struct {
	mem   *vfio.Memory
	iova  uint64
	flags vfio.DMAFlags
	refs  int // registrations of it; guarded by NIC.mu
}

// newDMA allocates memory and maps it for the device.
func (n *NIC) newDMA(ctx context.Context, size uint64, flags vfio.DMAFlags, o vfio.MemoryOptions) (*dmaBuffer, error) {
	if n.physical != nil {
		o.Huge = vfio.HugeRequire
	}
	mem, err := vfio.AllocMemory(size, o)
	if err != nil {
		return nil, err
	}
	iova, err := n.mapDMA(ctx, mem, flags)
	if err != nil {
		return nil, errors.Join(err, mem.Close())
	}
	b := &dmaBuffer{mem: mem, iova: iova, flags: flags}
	n.mu.Lock()
	n.buffers[b] = struct{}{}
	n.mu.Unlock()
	return b, nil
}

// freeDMA takes memory away from the device and frees it. The device must have
// said that it does not use it any more, or have been reset. If it cannot be
// taken away it is kept until Close.
func (n *NIC) freeDMA(b *dmaBuffer) error {
	if err := n.dev.UnmapDMA(b.iova, b.mem.Size()); err != nil {
		return err
	}
	n.mu.Lock()
	delete(n.buffers, b)
	n.mu.Unlock()
	return errors.Join(n.displace(b.iova, b.mem), b.mem.Close())
}

// mapDMA chooses a bus address for memory and maps it there. Without an IOMMU there is no choice.
func (n *NIC) mapDMA(ctx context.Context, mem *vfio.Memory, flags vfio.DMAFlags) (iova uint64, err error) {
	if n.physical != nil {
		iova, err = n.physical.PhysicalAddress(mem)
	} else {
		iova, err = n.iovas.Alloc(mem.Size(), mem.PageSize())
	}
	if err != nil {
		return 0, err
	}
	if err := n.bound(ctx, timeout, func() error { return n.dev.MapDMA(mem, iova, flags) }); err != nil {
		return 0, errors.Join(err, n.displace(iova, mem))
	}
	return iova, nil
}

// displace gives back what mapDMA has chosen.
func (n *NIC) displace(iova uint64, mem *vfio.Memory) error {
	if n.physical != nil {
		return nil
	}
	return n.iovas.Free(iova, mem.Size())
}

// release frees b after the command that would have used it failed with err,
// unless the device may have understood the command and use it. Then it is kept
// until Close, which resets the device first.
func (n *NIC) release(b *dmaBuffer, err error) error {
	if outcomeUnknown(err) {
		return err
	}
	return errors.Join(err, n.freeDMA(b))
}
