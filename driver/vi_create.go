package driver

import (
	"cmp"
	"context"
	"fmt"
	"math/bits"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
)

// CreateVI makes an idle VI, or an endpoint for raw frames. Its queues complete to
// the given CQs, for life; with nil a queue has no CQ. Both may be the same, and many
// VIs may share one.
// Errors: ErrResource if the NIC has no more VIs, and ErrCQTooSmall if a CQ could not hold the
// completions of all its queues, ErrInvalidReliability, ErrInvalidMTU,
// ErrInvalidPtag, ErrInvalidRDMARead.
func (n *NIC) CreateVI(ctx context.Context, a VIAttributes, send, recv *CQ) (*VI, error) {
	return get(ctx, n.do, "create VI", func() (*VI, error) {
		if n.eager && !a.EagerTokens && a.Frames == NoFrames {
			a.EagerTokens, a.NoRoom = true, NoRoomOrdinary
		}
		return n.createChecked(ctx, a, send, recv)
	})
}

// createChecked makes a VI, or a receive queue, of attributes whose defaults are not filled in.
func (n *NIC) createChecked(ctx context.Context, a VIAttributes, send, recv *CQ) (v *VI, err error) {
	if err := n.complete(&a); err != nil {
		return nil, err
	}
	if err := n.checkShared(&a, send, recv); err != nil {
		return nil, err
	}
	if err := a.ReceiveQueue.use(n); err != nil {
		return nil, err
	}
	err = a.Ptag.usedFor(n, func() (err error) {
		v, err = n.createAttached(ctx, a, send, recv)
		return err
	})
	if err != nil {
		a.ReceiveQueue.leave()
	}
	return v, err
}

// createAttached makes a VI of attributes that were checked, and counts what its queues complete to their CQs.
func (n *NIC) createAttached(ctx context.Context, a VIAttributes, sendCQ, recvCQ *CQ) (*VI, error) {
	if err := n.attach(sendCQ, a.SendDepth); err != nil {
		return nil, err
	}
	if err := n.attach(recvCQ, a.RecvDepth); err != nil {
		n.detach(sendCQ, a.SendDepth)
		return nil, err
	}
	create := n.createVI
	if a.EagerTokens {
		create = n.createEager
	}
	v, err := create(ctx, a, sendCQ, recvCQ)
	if err != nil {
		n.detach(sendCQ, a.SendDepth)
		n.detach(recvCQ, a.RecvDepth)
	}
	return v, err
}

// ringLog2 is the size of the ring for a depth, as the formats allow it.
func ringLog2(depth int) uint8 {
	return max(uint8(bits.Len(uint(depth-1))), datasheet.MinQueueLog2)
}

func (n *NIC) createVI(ctx context.Context, a VIAttributes, sendCQ, recvCQ *CQ) (*VI, error) {
	v := &VI{endpoint: endpoint{n: n, what: "VI"}, key: n.keys.Add(1)}
	if a.shared {
		v.what = "receive queue"
	}
	v.queues = v
	v.attributes.Store(&a)
	sendLog2, recvLog2 := ringLog2(a.SendDepth), ringLog2(a.RecvDepth)
	sendBytes := uint64(datasheet.TokenSize) << sendLog2
	recvBytes := uint64(datasheet.TokenSize) << recvLog2
	rings, err := n.space.Ring(ctx, sendBytes+recvBytes, vfio.DMARead)
	if err != nil {
		return nil, err
	}
	v.rings = rings
	v.send.init(v, "send", sendCQ, a.SendDepth, rings.Bytes()[:sendBytes])
	v.recv.init(v, "receive", recvCQ, a.RecvDepth, rings.Bytes()[sendBytes:sendBytes+recvBytes])
	v.initShared(&a)
	reply, err := n.execute(ctx, newCommand(datasheet.OpCreateEndpoint, datasheet.CreateEndpointBody{
		SendIOVA: rings.IOVA, RecvIOVA: v.recvIOVA(rings.IOVA + sendBytes), Ptag: a.Ptag.Number(), MaxTransfer: a.MaxTransfer,
		SendCQ: cqNumber(sendCQ), RecvCQ: cqNumber(recvCQ),
		SendVector: vectorNumber(v.send.vec), RecvVector: vectorNumber(v.recv.vec),
		Kind: a.kind(), Reliability: a.Reliability, SendLog2: sendLog2, RecvLog2: recvLog2, Rights: rights(a.RDMAWrite, a.RDMARead), Options: a.options(),
	}))
	if err != nil {
		return nil, n.release(rings, err)
	}
	created := datasheet.Reply[datasheet.EndpointCreated](reply)
	if a.EagerTokens {
		if err := v.layTokens(created); err != nil {
			return nil, n.fail(err)
		}
	}
	if err := n.adopt(&v.endpoint, created.Endpoint, false); err != nil {
		return nil, err
	}
	page := datasheet.EndpointPage(v.number)
	v.send.bell, v.send.armBell = n.doorbellAt(page+datasheet.DoorbellSend), n.doorbellAt(page+datasheet.DoorbellSendArm)
	v.recv.bell, v.recv.armBell = n.doorbellAt(page+datasheet.DoorbellRecv), n.doorbellAt(page+datasheet.DoorbellRecvArm)
	v.send.path = n.path(v.number)
	v.recv.path = v.send.path
	v.send.hasten()
	v.recv.hasten()
	return v, nil
}

func (v *VI) refuse(yes bool) {
	v.send.refuse(yes)
	v.recv.refuse(yes)
	for _, q := range []*workQueue{&v.send, &v.recv} {
		q.mu.Lock()
		q.hasten()
		q.mu.Unlock()
	}
}

func (v *VI) close() {
	v.send.close()
	v.recv.close()
}

func (v *VI) forget() {
	v.send.cq.forget(&v.send)
	v.recv.cq.forget(&v.recv)
	if q := v.source(); q != nil {
		q.cq.forget(nil) // it finds the VIs of all completions, before v has its number no more
	}
}

func (v *VI) free() error {
	v.n.detach(v.send.cq, v.Attributes().SendDepth)
	v.n.detach(v.recv.cq, v.Attributes().RecvDepth)
	v.Attributes().Ptag.leave()
	v.Attributes().ReceiveQueue.leave()
	return v.n.space.Free(v.rings)
}

func (v *VI) holds(handle uint32) bool { return v.send.holds(handle) || v.recv.holds(handle) }

func (v *VI) lose(address uint64) {
	v.send.lose(address)
	v.recv.lose(address)
}

// complete fills in the defaults of a, and checks it.
func (n *NIC) complete(a *VIAttributes) error {
	if a.Ptag == nil && a.ReceiveQueue != nil {
		a.Ptag = a.ReceiveQueue.Ptag()
	}
	a.Ptag = n.ptagOr(a.Ptag)
	limits := n.Query()
	reliability, size := datasheet.ReliableDelivery, min(DefaultMaxTransfer, limits.MaxTransfer)
	if a.Frames != NoFrames {
		reliability, size = datasheet.Unreliable, uint32(limits.MTU)
	}
	a.Reliability, a.MaxTransfer = cmp.Or(a.Reliability, reliability), cmp.Or(a.MaxTransfer, size)
	depth := min(DefaultDepth, limits.MaxDescriptors)
	a.SendDepth, a.RecvDepth = cmp.Or(a.SendDepth, depth), cmp.Or(a.RecvDepth, depth)
	switch {
	case a.Frames > AllFrames:
		return refusal(descriptors.ErrInvalidParameter, "it is NoFrames, StationFrames or AllFrames", "Frames is %d", a.Frames)
	case a.Reliability&(a.Reliability-1) != 0 || a.Reliability&limits.Reliability == 0:
		return refusal(descriptors.ErrInvalidReliability, "NIC.Query tells the levels", "%v", a.Reliability)
	case a.MaxTransfer > limits.MaxTransfer:
		return refusal(descriptors.ErrInvalidMTU, "", "maximum transfer size of %d bytes, the NIC takes 1 to %d", a.MaxTransfer, limits.MaxTransfer)
	case a.RDMARead && a.Reliability&limits.RDMARead == 0:
		return refusal(descriptors.ErrInvalidRDMARead, "", "")
	case a.EagerTokens && a.kind() != datasheet.KindVI || a.NoRoom > NoRoomWaits:
		return refusal(descriptors.ErrInvalidParameter, "only a VI has eager tokens", "EagerTokens of kind %v, NoRoom %d", a.kind(), a.NoRoom)
	}
	return n.checkDepths(a.SendDepth, a.RecvDepth)
}

func (n *NIC) checkDepths(send, recv int) error {
	for _, d := range []struct {
		side  string
		depth int
	}{{"send", send}, {"receive", recv}} {
		if d.depth < 1 || d.depth > n.identity.MaxQueueDepth {
			return hinted(fmt.Errorf("%w: %s queue of %d descriptors", descriptors.ErrInvalidParameter, d.side, d.depth),
				fmt.Sprintf("this device has queues of 1 to %d", n.identity.MaxQueueDepth))
		}
	}
	return nil
}

// checkShared names what is wrong with a new VI that shares a receive queue, or with a new
// queue to share.
func (n *NIC) checkShared(a *VIAttributes, sendCQ, recvCQ *CQ) error {
	from := a.ReceiveQueue
	if from == nil && !a.shared {
		return nil
	}
	bad := func(what string) error {
		return hinted(fmt.Errorf("%w: %s", descriptors.ErrInvalidParameter, what), "")
	}
	switch {
	case a.shared && recvCQ == nil:
		return bad("a receive queue has one completion queue")
	case a.shared:
		return nil
	case a.Frames != NoFrames:
		return bad("only a VI can share a receive queue")
	case from.v.n != n:
		return bad("ReceiveQueue is not a receive queue of this NIC")
	case recvCQ != nil:
		return bad("receives of a VI that shares a queue complete where the queue's do")
	}
	a.RecvDepth = 1
	return nil
}

// initShared makes the receive queue of v one that VIs share, or, if it shares another's,
// no queue at all.
func (v *VI) initShared(a *VIAttributes) {
	q := &v.recv
	switch {
	case a.shared:
		q.shared, q.free = true, make([]uint32, a.RecvDepth)
		for i := range q.free {
			q.free[i] = uint32(i)
		}
	case a.ReceiveQueue != nil:
		q.closed = true
		q.closedAs = v.n.refuse("use receive queue", descriptors.ErrInvalidState, "the VI shares a receive queue: use that one and its completion queue")
	}
}

// recvIOVA is where CREATE_ENDPOINT is told that the receives are, whose ring is at iova.
func (v *VI) recvIOVA(iova uint64) uint64 {
	if q := v.source(); q != nil {
		return uint64(q.vi.number)
	}
	return iova
}

// createEager is createVI for a VI whose tokens are eager (SPEC.md 4.4), as a.NoRoom says.
func (n *NIC) createEager(ctx context.Context, a VIAttributes, sendCQ, recvCQ *CQ) (*VI, error) {
	return eagerly(ctx, n, a.NoRoom, fieldOptions, func(eager bool) (*VI, error) {
		a.EagerTokens = eager
		return n.createVI(ctx, a, sendCQ, recvCQ)
	})
}
