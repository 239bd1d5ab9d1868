package driver

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// VIState is returned by VI.Query.
type VIState struct {
	State      datasheet.State
	Attributes VIAttributes
	// SendQueued and RecvQueued are the numbers of descriptors that have been
	// posted and not been taken back with Done or Wait, whether completed or
	// not. VIA's two "queue empty" flags say that they are zero.
	SendQueued, RecvQueued int
	// RemoteMAC and RemoteVI name the other end, zero if there is none.
	RemoteMAC datasheet.MAC
	RemoteVI  uint32
}

// NIC that the VI belongs to.
func (v *VI) NIC() *NIC { return v.n }

// Query asks the NIC for the state of the VI.
func (v *VI) Query(ctx context.Context) (VIState, error) {
	return get(ctx, v.do, "query VI", func() (VIState, error) { return v.query(ctx, &v.leaving) })
}

func (v *VI) query(ctx context.Context, of *leaving) (VIState, error) {
	d, err := v.state(ctx, of)
	if err != nil {
		return VIState{}, err
	}
	s := VIState{State: d.State, Attributes: v.Attributes(), RemoteMAC: d.RemoteMAC, RemoteVI: d.RemoteEndpoint}
	s.SendQueued, s.RecvQueued = v.Queued()
	if s.State == datasheet.StateIdle && v.checkPeer() != nil {
		s.State = datasheet.StateConnectPending
	}
	return s, nil
}

// SetPayload writes an entry, 0 to 255, of the VI's payload table, which VIA does
// not have: length bytes of m from offset on, where the NIC puts the message that
// its demux program gives the entry, whatever order messages come in. The next
// receive completes with it as always; its buffers stay as they are. With a nil m
// the entry is emptied. Memory that is deregistered does not leave the table:
// messages that are given the entry then fail with StatusProtectionError.
//
// It fails with ErrInvalidParameter if the entry does not exist, or if m is not
// memory that the NIC may write for this VI.
func (v *VI) SetPayload(ctx context.Context, entry int, m *Memory, offset, length int) error {
	return v.do(ctx, "set payload entry", func() error {
		body := datasheet.SetPayloadBody{Endpoint: v.number, Entry: uint32(entry)}
		switch {
		case m == nil:
		case m.n != v.n:
			return refusal(descriptors.ErrInvalidParameter, "", "not memory of this NIC")
		case m.Bytes() == nil:
			return refusal(descriptors.ErrClosed, "", "the memory is not registered any more")
		case offset < 0 || length < 1 || offset > m.Size() || length > m.Size()-offset || length > math.MaxUint32:
			return refusal(descriptors.ErrInvalidParameter, "", "%d bytes at %d, of memory of %d", length, offset, m.Size())
		default:
			body.Address, body.Handle, body.Length = m.address+uint64(offset), m.handle, uint32(length)
		}
		if entry < 0 || entry >= datasheet.PayloadEntries {
			return hinted(fmt.Errorf("%w: entry %d", descriptors.ErrInvalidParameter, entry),
				fmt.Sprintf("a table has entries 0 to %d", datasheet.PayloadEntries-1))
		}
		// Before the device knows: it may use the entry as soon as it does.
		v.recv.allow(body.Length)
		_, err := v.execute(ctx, newCommand(datasheet.OpSetPayload, body))
		return err
	})
}

// NewDescriptors makes n descriptors with room for segments data segments each, of which
// RDMA takes one for its address segment, in memory registered for this VI. They live as
// long as the VI, and only it takes them: another answers ErrInvalidParameter. A descriptor
// may be used again after it has been taken back: Rearm keeps its segments, Prepare drops
// them.
func (v *VI) NewDescriptors(ctx context.Context, n, segments int) ([]*descriptors.Descriptor, error) {
	const op = "new descriptors"
	if err := v.begin(ctx, op); err != nil {
		return nil, err
	}
	defer v.leaving.leave(v.n)
	// The upper bound keeps the product below far from overflow.
	if limit := 2 * v.n.identity.MaxQueueDepth; n < 1 || n > limit {
		return nil, v.n.Refuse(op, descriptors.ErrInvalidParameter, "", "%d descriptors, 1 to %d can be made at a time", n, limit)
	}
	if limit := v.n.identity.MaxSegments + 1; segments < 0 || segments > limit {
		return nil, v.n.Refuse(op, descriptors.ErrInvalidParameter, "", "%d segments, the NIC takes 0 to %d", segments, limit)
	}
	v.alter.Lock()
	defer v.alter.Unlock()

	stride := descriptors.DescriptorBytes(segments)
	pool, err := v.n.Alloc(ctx, n*stride, MemoryAttributes{Ptag: v.Attributes().Ptag})
	if err != nil {
		return nil, err
	}
	ds := make([]*descriptors.Descriptor, n)
	for i := range ds {
		if ds[i], err = pool.NewDescriptor(i*stride, segments); err != nil {
			_ = pool.Close(ctx) // the reason to give is the first one
			return nil, err
		}
		ds[i].Post().Owner = v.key
	}
	v.pools = append(v.pools, pool)
	return ds, nil
}

// Close ends the VI and frees the descriptors from NewDescriptors. It fails with
// ErrInvalidState if the VI is connected or being connected, and with ErrResource if
// descriptors are on its queues: disconnect, take them back with SendDone and RecvDone, and
// close it then. A second call does nothing.
func (v *VI) Close(ctx context.Context) error {
	return v.closeAll(ctx, "close VI", func() error {
		if v.leaving.uses > 0 {
			return refusal(descriptors.ErrInvalidState, "another call on this VI is in progress; let it end first", "")
		}
		return nil
	}, func() error { return v.checkClose(ctx) })
}

// Abandon ends the VI as Close does, but in any state, and does not look at what is on
// its queues: for the end of a program that may have unmapped the memory of descriptors
// already. The peer learns that the connection has ended, and calls in progress fail with ErrClosed.
func (v *VI) Abandon(ctx context.Context) error {
	if ctx != nil {
		v.endPeer()
	}
	return v.closeAll(ctx, "close VI", nil, nil)
}

// closeAll closes the VI and what was made for it. The rest goes with it, even if ctx ends.
func (v *VI) closeAll(ctx context.Context, op string, inTheWay, check func() error) error {
	gone, err := v.closeUnless(ctx, op, inTheWay, check)
	if !gone {
		return err
	}
	v.alter.Lock()
	defer v.alter.Unlock()
	for _, pool := range v.pools {
		err = errors.Join(err, pool.Close(context.WithoutCancel(ctx)))
	}
	v.pools = nil
	return err
}

func (v *VI) checkClose(ctx context.Context) error {
	s, err := v.query(ctx, nil)
	switch {
	case err != nil:
		return err
	case s.State == datasheet.StateConnected || s.State == datasheet.StateConnectPending:
		return refusal(descriptors.ErrInvalidState, "disconnect it first", "the VI is in state %v", s.State)
	case s.SendQueued+s.RecvQueued > 0:
		return refusal(descriptors.ErrResource, "take them back with SendDone and RecvDone first",
			"%d send and %d receive descriptors are on its queues", s.SendQueued, s.RecvQueued)
	}
	return nil
}
