package driver

import (
	"context"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
)

// VI is a virtual interface: a send queue and a receive queue that can be
// connected to one other VI. The methods of the data path are:
//
//	PostSend(d), PostRecv(d)                      hand a descriptor to a queue
//	PostSendBatch(ds), PostRecvBatch(ds)          several with one doorbell
//	SendDone(), RecvDone()                        take back the oldest one that has completed
//	SendDoneBatch(into), RecvDoneBatch(into)      all that have completed
//	SendWait(ctx), RecvWait(ctx)                  wait until the oldest one has completed
//	NotifySend(f), NotifyRecv(f)                  call f with it, on a goroutine of its own
//	ReadDirect(address, handle, m, offset, n)     an RDMA read that is a copy at once
//	Queued() (send, recv), Stats()                what is posted, and what was counted
//
// They allocate nothing unless they fail, and hold no lock that another VI needs. All methods may be called from several
// goroutines; two that use the same queue take turns.
type VI struct {
	endpoint
	key        uint32 // no other VI of the NIC ever has it
	attributes atomic.Pointer[VIAttributes]
	send, recv workQueue
	rings      *dmaBuffer

	alter sync.Mutex // held while the attributes change, or descriptors are made
	pools []*Memory  // of NewDescriptors; guarded by alter
}

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
	rings, err := n.newDMA(ctx, sendBytes+recvBytes, vfio.DMARead, vfio.MemoryOptions{Huge: vfio.HugeNever})
	if err != nil {
		return nil, err
	}
	v.rings = rings
	v.send.init(v, "send", sendCQ, a.SendDepth, rings.mem.Bytes()[:sendBytes])
	v.recv.init(v, "receive", recvCQ, a.RecvDepth, rings.mem.Bytes()[sendBytes:sendBytes+recvBytes])
	v.initShared(&a)
	reply, err := n.execute(ctx, newCommand(datasheet.OpCreateEndpoint, datasheet.CreateEndpointBody{
		SendIOVA: rings.iova, RecvIOVA: v.recvIOVA(rings.iova + sendBytes), Ptag: a.Ptag.Number(), MaxTransfer: a.MaxTransfer,
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

// init makes a queue of depth descriptors over a ring that has room for them.
func (q *workQueue) init(v *VI, side string, cq *CQ, depth int, ring []byte) {
	q.n, q.vi, q.side, q.cq, q.depth, q.holder = v.n, v, side, cq, uint32(depth), q
	q.bytes, q.tokens = ring, datasheet.TokensAt(ring)
	q.posted = make([]posting, len(q.tokens))
	q.mask = uint32(len(q.tokens) - 1)
	if q.sends = q == &v.send; !q.sends {
		q.which = RecvQueue
	}
	if k := v.n.options.SampleLatency; q.sends && k > 0 {
		q.sampler = &latencySampler{mask: 1<<k - 1}
	}
	if cq == nil {
		q.vec = v.n.pickVector()
	} else {
		q.notes = make([]note, len(q.tokens))
	}
	q.closedAs = v.n.error("use "+side+" queue", descriptors.ErrClosed)
}

// VI returns the VI with a number, such as that of an event or of a completion; nil
// if there is none.
func (n *NIC) VI(number uint32) *VI {
	e := n.endpoint(number)
	if e == nil {
		return nil
	}
	v, _ := e.queues.(*VI)
	return v
}

// Attributes of the VI, defaults filled in.
func (v *VI) Attributes() VIAttributes { return *v.attributes.Load() }

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
	return v.n.freeDMA(v.rings)
}

func (v *VI) holds(handle uint32) bool { return v.send.holds(handle) || v.recv.holds(handle) }

func (v *VI) lose(address uint64) {
	v.send.lose(address)
	v.recv.lose(address)
}
