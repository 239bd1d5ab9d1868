package driver

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// SetAttributes gives an idle VI other attributes, as VipSetViAttributes does: its
// reliability level, maximum transfer size, ptag and rights, with the defaults of
// CreateVI. The depths of its queues do not change: zero, or what they are. Descriptors
// from NewDescriptors get the new ptag too; other memory keeps its own. Receives that are posted stay posted. It fails with
// ErrInvalidState if the VI is not idle, and as CreateVI does; then nothing has changed.
func (v *VI) SetAttributes(ctx context.Context, a VIAttributes) error {
	const op = "set VI attributes"
	if err := v.begin(ctx, op); err != nil {
		return err
	}
	defer v.leaving.leave(v.n)
	v.alter.Lock()
	defer v.alter.Unlock()
	now := v.Attributes()
	a.SendDepth, a.RecvDepth = cmp.Or(a.SendDepth, now.SendDepth), cmp.Or(a.RecvDepth, now.RecvDepth)
	if a.ReceiveQueue = cmp.Or(a.ReceiveQueue, now.ReceiveQueue); a.ReceiveQueue != nil {
		a.RecvDepth = now.RecvDepth
	}
	a.EagerTokens, a.NoRoom, a.shared = now.EagerTokens, now.NoRoom, now.shared
	if err := v.change(ctx, op, a); err != nil || a.Ptag == now.Ptag {
		return err
	}
	a = v.Attributes()
	for i, pool := range v.pools {
		if err := pool.SetAttributes(ctx, MemoryAttributes{Ptag: a.Ptag}); err != nil {
			rest := context.WithoutCancel(ctx)
			for _, pool := range v.pools[:i] {
				err = errors.Join(err, pool.SetAttributes(rest, MemoryAttributes{Ptag: now.Ptag}))
			}
			return errors.Join(err, v.change(rest, op, now))
		}
	}
	return nil
}

// change changes the VI on the device.
func (v *VI) change(ctx context.Context, op string, a VIAttributes) error {
	n := v.n
	return n.do(ctx, op, func() error {
		if err := v.checkPeer(); err != nil {
			return err
		}
		if err := n.complete(&a); err != nil {
			return err
		}
		if now := v.Attributes(); a.Frames != now.Frames || a.SendDepth != now.SendDepth || a.RecvDepth != now.RecvDepth || a.ReceiveQueue != now.ReceiveQueue {
			return hinted(fmt.Errorf("%w: kind and queues of a VI do not change", descriptors.ErrInvalidParameter), "create another VI")
		}
		err := a.Ptag.usedFor(n, func() error {
			_, err := v.execute(ctx, newCommand(datasheet.OpModifyEndpoint, datasheet.ModifyEndpointBody{Endpoint: v.number, Ptag: a.Ptag.Number(),
				MaxTransfer: a.MaxTransfer, Reliability: a.Reliability, Rights: rights(a.RDMAWrite, a.RDMARead), Options: a.options()}))
			return err
		})
		if err != nil {
			return err
		}
		v.attributes.Swap(&a).Ptag.leave()
		n.regions.forget() // work queues remember memory of the old ptag
		return nil
	})
}
