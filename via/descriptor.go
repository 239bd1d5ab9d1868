package via

import (
	"context"

	"github.com/trapeze-nic/trapeze/descriptors"
)

// NewDescriptors makes n descriptors with room for segments data segments each, of which
// RDMA takes one for its address segment, in memory registered for this VI. They live as
// long as the VI, and only it takes them: another answers ErrInvalidParameter. A descriptor
// may be used again after it has been taken back: Rearm keeps its segments, Prepare drops
// them.
func (v *VI) NewDescriptors(ctx context.Context, n, segments int) ([]*Descriptor, error) {
	const op = "new descriptors"
	nic := v.nic
	if err := nic.check(ctx, op); err != nil {
		return nil, err
	}
	// The upper bound keeps the product below far from overflow.
	if limit := 2 * nic.attributes.MaxDescriptors; n < 1 || n > limit {
		return nil, nic.refuse(op, ErrInvalidParameter, "", "%d descriptors, 1 to %d can be made at a time", n, limit)
	}
	if limit := nic.attributes.MaxSegments + 1; segments < 0 || segments > limit {
		return nil, nic.refuse(op, ErrInvalidParameter, "", "%d segments, the NIC takes 0 to %d", segments, limit)
	}
	if err := nic.acquire(op, &v.object); err != nil {
		return nil, err
	}
	defer nic.release(&v.object)
	v.alter.Lock()
	defer v.alter.Unlock()

	stride := descriptors.DescriptorBytes(segments)
	pool, err := nic.Alloc(ctx, n*stride, MemoryAttributes{Ptag: v.Attributes().Ptag})
	if err != nil {
		return nil, err
	}
	ds := make([]*Descriptor, n)
	for i := range ds {
		if ds[i], err = pool.NewDescriptor(i*stride, segments); err != nil {
			_ = pool.Close(ctx) // the reason to give is the first one
			return nil, err
		}
		v.d.Own(ds[i])
	}
	nic.mu.Lock()
	v.pools = append(v.pools, pool)
	nic.mu.Unlock()
	return ds, nil
}
