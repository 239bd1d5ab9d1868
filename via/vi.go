package via

import (
	"context"
	"errors"
	"math"
	"sync"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// VI is a virtual interface: a send queue and a receive queue that can be
// connected to one other VI. Its Queues have the methods of the data path:
//
//	PostSend(d), PostRecv(d)                      hand a descriptor to a queue
//	PostSendBatch(ds), PostRecvBatch(ds)          several with one doorbell
//	SendDone(), RecvDone()                        take back the oldest one that has completed
//	SendDoneBatch(into), RecvDoneBatch(into)      all that have completed
//	SendWait(ctx), RecvWait(ctx)                  wait until the oldest one has completed
//	NotifySend(f), NotifyRecv(f)                  call f with it, on a goroutine of its own
//	ReadDirect(address, handle, m, offset, n)     an RDMA read that is a copy at once
//	Queued() (send, recv), Stats()                what is posted, and what was counted
type VI struct {
	object
	*driver.Queues
	d *driver.VI
	// alter is held while the attributes change, or descriptors are made.
	alter sync.Mutex
	// Guarded by the NIC's mutex: attributes, and the memory of NewDescriptors.
	attributes VIAttributes
	pools      []*Memory
	peer       *peer // the last request to connect with a peer
}

// VIStats has the counters of a VI, with the name, help and unit of each in its tags.
type VIStats = driver.VIStats

// CreateVI makes an idle VI, or an endpoint for raw frames. Its queues complete to
// the given CQs, for life; with nil a queue has no CQ. Both may be the same, and many
// VIs may share one.
// Errors: ErrResource if the NIC has no more VIs or a CQ could not hold the
// completions of all its queues, ErrInvalidReliability, ErrInvalidMTU,
// ErrInvalidPtag, ErrInvalidRDMARead.
func (n *NIC) CreateVI(ctx context.Context, a VIAttributes, send, recv *CQ) (*VI, error) {
	const op = "create VI"
	a, err := n.complete(op, a)
	if err != nil {
		return nil, err
	}
	if n.eager && !a.EagerTokens && a.Frames == NoFrames {
		a.EagerTokens, a.NoRoom = true, NoRoomOrdinary
	}
	if q := a.ReceiveQueue; q != nil {
		if err := n.acquire(op, &q.v.object); err != nil {
			return nil, err
		}
	}
	d, err := n.d.CreateVI(ctx, a.driver(), send.driver(), recv.driver())
	if err != nil {
		a.ReceiveQueue.leave()
		return nil, err
	}
	a.EagerTokens = d.Attributes().EagerTokens // it may have fallen back
	v := &VI{object: object{nic: n}, Queues: &d.Queues, d: d, attributes: a}
	d.SetUser(v)
	return v, nil
}

// complete fills in the defaults of a and checks what needs no NIC to check.
func (n *NIC) complete(op string, a VIAttributes) (VIAttributes, error) {
	if a.Ptag == nil && a.ReceiveQueue != nil {
		a.Ptag = a.ReceiveQueue.Ptag()
	}
	if a.Ptag == nil {
		a.Ptag = n.ptag
	}
	reliability, size := ReliableDelivery, min(DefaultMaxTransfer, n.attributes.MaxTransfer)
	if a.Frames != NoFrames {
		reliability, size = Unreliable, uint32(n.attributes.MTU)
	}
	if a.Reliability == 0 {
		a.Reliability = reliability
	}
	if a.MaxTransfer == 0 {
		a.MaxTransfer = size
	}
	if a.SendDepth == 0 {
		a.SendDepth = min(DefaultDepth, n.attributes.MaxDescriptors)
	}
	if a.RecvDepth == 0 {
		a.RecvDepth = min(DefaultDepth, n.attributes.MaxDescriptors)
	}
	switch {
	case a.Frames > AllFrames:
		return a, n.refuse(op, ErrInvalidParameter, "it is NoFrames, StationFrames or AllFrames", "Frames is %d", a.Frames)
	case a.Reliability&(a.Reliability-1) != 0 || a.Reliability&n.attributes.Reliability == 0:
		return a, n.refuse(op, ErrInvalidReliability, "NIC.Query tells the levels", "%v", a.Reliability)
	case a.MaxTransfer > n.attributes.MaxTransfer:
		return a, n.refuse(op, ErrInvalidMTU, "", "maximum transfer size of %d bytes, the NIC takes 1 to %d", a.MaxTransfer, n.attributes.MaxTransfer)
	case a.RDMARead && a.Reliability&n.attributes.RDMARead == 0:
		return a, n.refuse(op, ErrInvalidRDMARead, "", "")
	}
	return a, nil
}

// driver returns the driver's form of a, which has no zeroes left.
func (a VIAttributes) driver() driver.VIAttributes {
	kind := datasheet.KindVI
	if a.Frames != NoFrames {
		kind = datasheet.KindFrame
	}
	return driver.VIAttributes{Kind: kind, Promiscuous: a.Frames == AllFrames, Reliability: a.Reliability, MaxTransfer: a.MaxTransfer,
		NeedReceives: a.NeedReceives,
		Ptag:         a.Ptag, Rights: driver.Rights(a.RDMAWrite, a.RDMARead), SendDepth: a.SendDepth, RecvDepth: a.RecvDepth,
		ReceiveQueue: a.ReceiveQueue.driver(), EagerTokens: a.EagerTokens, NoRoom: a.NoRoom}
}

// driver is the driver's CQ, nil for none.
func (c *CQ) driver() *driver.CQ {
	if c == nil {
		return nil
	}
	return c.d
}

// Number is the NIC's name for the VI.
func (v *VI) Number() uint32 { return v.d.Number() }

// NIC that the VI belongs to.
func (v *VI) NIC() *NIC { return v.nic }

// Attributes of the VI, defaults filled in.
func (v *VI) Attributes() VIAttributes {
	v.nic.mu.Lock()
	defer v.nic.mu.Unlock()
	return v.attributes
}

// SetAttributes gives an idle VI other attributes, as VipSetViAttributes does: its
// reliability level, maximum transfer size, ptag and rights, with the defaults of
// CreateVI. The depths of its queues do not change: zero, or what they are. Descriptors
// from NewDescriptors get the new ptag too; other memory keeps its own. It fails with
// ErrInvalidState if the VI is not idle, and as CreateVI does; then nothing has changed.
func (v *VI) SetAttributes(ctx context.Context, a VIAttributes) error {
	const op = "set VI attributes"
	n := v.nic
	if err := n.acquire(op, &v.object); err != nil {
		return err
	}
	defer n.release(&v.object)
	if err := v.checkPeer(op); err != nil {
		return err
	}
	v.alter.Lock()
	defer v.alter.Unlock()
	now := v.Attributes()
	if a.SendDepth == 0 {
		a.SendDepth = now.SendDepth
	}
	if a.RecvDepth == 0 {
		a.RecvDepth = now.RecvDepth
	}
	if a.ReceiveQueue == nil {
		a.ReceiveQueue = now.ReceiveQueue
	}
	a.EagerTokens, a.NoRoom = now.EagerTokens, now.NoRoom
	a, err := n.complete(op, a)
	if err != nil {
		return err
	}
	if err := v.alterTo(ctx, now, a); err != nil {
		return err
	}
	n.mu.Lock()
	v.attributes = a
	n.mu.Unlock()
	return nil
}

// alterTo has the NIC change the VI and the memory of its descriptors, or nothing.
func (v *VI) alterTo(ctx context.Context, now, a VIAttributes) error {
	if err := v.d.SetAttributes(ctx, a.driver()); err != nil {
		return err
	}
	if a.Ptag == now.Ptag {
		return nil
	}
	for i, pool := range v.pools {
		if err := pool.SetAttributes(ctx, MemoryAttributes{Ptag: a.Ptag}); err != nil {
			rest := context.WithoutCancel(ctx)
			for _, pool := range v.pools[:i] {
				err = errors.Join(err, pool.SetAttributes(rest, MemoryAttributes{Ptag: now.Ptag}))
			}
			return errors.Join(err, v.d.SetAttributes(rest, now.driver()))
		}
	}
	return nil
}

// Query asks the NIC for the state of the VI.
func (v *VI) Query(ctx context.Context) (VIState, error) {
	if err := v.nic.acquire("query VI", &v.object); err != nil {
		return VIState{}, err
	}
	defer v.nic.release(&v.object)
	return v.query(ctx)
}

func (v *VI) query(ctx context.Context) (VIState, error) {
	d, err := v.d.Query(ctx)
	if err != nil {
		return VIState{}, err
	}
	s := VIState{State: d.State, Attributes: v.Attributes(), RemoteMAC: d.RemoteMAC, RemoteVI: d.RemoteEndpoint}
	s.SendQueued, s.RecvQueued = v.d.Queued()
	if s.State == Idle && v.peerPending() {
		s.State = ConnectPending
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
	const op = "set payload entry"
	n := v.nic
	var address uint64
	var handle uint32
	switch {
	case m == nil:
		offset, length = 0, 0
	case m.NIC() != n.d:
		return n.refuse(op, ErrInvalidParameter, "", "not memory of this NIC")
	case m.Bytes() == nil:
		return n.refuse(op, ErrClosed, "", "the memory is not registered any more")
	case offset < 0 || length < 1 || offset > m.Size() || length > m.Size()-offset || length > math.MaxUint32:
		return n.refuse(op, ErrInvalidParameter, "", "%d bytes at %d, of memory of %d", length, offset, m.Size())
	default:
		address, handle = m.Address()+uint64(offset), m.Handle()
	}
	if err := n.acquire(op, &v.object); err != nil {
		return err
	}
	defer n.release(&v.object)
	return v.d.SetPayload(ctx, entry, address, handle, uint32(length))
}

// Close ends the VI and frees the descriptors from NewDescriptors. It fails with
// ErrInvalidState if the VI is connected or being connected, and with ErrResource if
// descriptors are on its queues: disconnect, take them back with SendDone and RecvDone, and
// close it then.
func (v *VI) Close(ctx context.Context) error {
	return v.closeIf(ctx, v.checkClose)
}

// Abandon ends the VI as Close does, but in any state, and does not look at what is on
// its queues: for the end of a program that may have unmapped the memory of descriptors
// already. The peer learns that the connection has ended.
func (v *VI) Abandon(ctx context.Context) error {
	return v.closeIf(ctx, func(context.Context, string) error { return nil })
}

func (v *VI) closeIf(ctx context.Context, check func(ctx context.Context, op string) error) error {
	const op = "close VI"
	return v.end(ctx, op, ErrInvalidState, "another call on this VI is in progress; let it end first", func() (bool, error) {
		if err := check(ctx, op); err != nil {
			return false, err
		}
		return v.closeAll(ctx)
	})
}

// closeAll closes the VI and what was made for it, and reports whether the VI is gone. The
// rest goes then, even if ctx ends.
func (v *VI) closeAll(ctx context.Context) (bool, error) {
	if err := v.d.Close(ctx); err != nil {
		return false, err
	}
	var errs []error
	rest := context.WithoutCancel(ctx)
	for _, pool := range v.pools {
		errs = append(errs, pool.Close(rest))
	}
	v.Attributes().ReceiveQueue.leave()
	return true, errors.Join(errs...)
}

func (v *VI) checkClose(ctx context.Context, op string) error {
	s, err := v.query(ctx)
	if err != nil {
		return err
	}
	switch {
	case s.State == Connected || s.State == ConnectPending:
		return v.nic.refuse(op, ErrInvalidState, "disconnect it first", "the VI is in state %v", s.State)
	case s.SendQueued+s.RecvQueued > 0:
		return v.nic.refuse(op, ErrResource, "take them back with SendDone and RecvDone first",
			"%d send and %d receive descriptors are on its queues", s.SendQueued, s.RecvQueued)
	}
	return nil
}
