package driver

import (
	"cmp"
	"context"
	"fmt"
	"math/bits"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
)

// VIAttributes of a VI.
type VIAttributes struct {
	// Kind of the endpoint: KindVI, KindFrame for one that sends and takes raw Ethernet
	// frames, or KindReceiveQueue, see CreateVI. Zero is KindVI.
	Kind datasheet.Kind
	// Promiscuous, of KindFrame: it takes frames for other stations too.
	Promiscuous bool
	Reliability datasheet.Reliability
	// MaxTransfer is the largest message in bytes, 1 to the device's limit. Both
	// ends of a connection must have the same. Of KindFrame, the largest frame.
	MaxTransfer uint32
	// Ptag that the VI's memory must have; nil is the NIC's default.
	Ptag *Ptag
	// Rights enables remote operations: AccessRDMAWrite, AccessRDMARead.
	Rights datasheet.Access
	// NeedReceives, of a reliable VI: a message of the peer that finds no receive breaks
	// the connection, as VIA has it, instead of waiting for one.
	NeedReceives bool
	// SendDepth and RecvDepth are the numbers of descriptors that may be posted and not yet
	// taken back, 1 to the device's limit.
	SendDepth, RecvDepth int
	// ReceiveQueue is an endpoint of KindReceiveQueue whose receives the VI takes; nil
	// for a receive queue of its own. RecvDepth is not used then.
	ReceiveQueue *VI
	// EagerTokens, of KindVI: the device has the tokens of both queues in its own memory
	// before the doorbell rings (SPEC.md 4.4), as eager memory has descriptors and payload.
	// NoRoom says what becomes of that if it has no room. Attributes tells whether they are;
	// SetAttributes leaves both.
	EagerTokens bool
	NoRoom      NoRoom
}

// VI is a virtual interface: a send and a receive queue. Methods may be called
// from several goroutines; two that use the same queue take turns.
type VI struct {
	endpoint
	key        uint32 // no other VI of the NIC ever has it
	attributes atomic.Pointer[VIAttributes]
	Queues
	rings *dmaBuffer
}

// CreateVI creates a VI. Completions of a queue with a CQ are found there,
// others by SendDone and RecvDone alone; both arguments may be nil or the same.
// A CQ must have room for all that its queues can complete: else ErrCQTooSmall.
//
// With KindFrame each send is one Ethernet frame, from its destination address on,
// and each receive takes one. Such an endpoint has no connection and is open at
// once; its Reliability is Unreliable. It never sees frames of VIs. The oldest one
// takes the frames that come for this station or a group, unless a control program
// names another (SPEC.md 8.9).
//
// With KindReceiveQueue it is a receive queue that other VIs name in ReceiveQueue, and no
// more. It needs a CQ, and their receives complete there: CQ.Done takes them. RecvDone and
// PostRecv of such VIs fail with ErrInvalidState, and they have no recvCQ.
func (n *NIC) CreateVI(ctx context.Context, a VIAttributes, sendCQ, recvCQ *CQ) (v *VI, err error) {
	err = n.do(ctx, "create VI", func() (err error) {
		a.Kind = cmp.Or(a.Kind, datasheet.KindVI)
		if err := n.checkShared(&a, sendCQ, recvCQ); err != nil {
			return err
		}
		for _, d := range []struct {
			side  string
			depth int
		}{{"send", a.SendDepth}, {"receive", a.RecvDepth}} {
			if d.depth < 1 || d.depth > n.identity.MaxQueueDepth {
				return hinted(fmt.Errorf("%w: %s queue of %d descriptors", descriptors.ErrInvalidParameter, d.side, d.depth),
					fmt.Sprintf("this device has queues of 1 to %d", n.identity.MaxQueueDepth))
			}
		}
		if a.EagerTokens && a.Kind != datasheet.KindVI || a.NoRoom > NoRoomWaits {
			return hinted(fmt.Errorf("%w: EagerTokens of kind %v, NoRoom %d", descriptors.ErrInvalidParameter, a.Kind, a.NoRoom), "only a VI has eager tokens")
		}
		a.Ptag = n.ptagOr(a.Ptag)
		err = a.Ptag.usedFor(n, func() (err error) {
			v, err = n.createAttached(ctx, a, sendCQ, recvCQ)
			return err
		})
		return err
	})
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
		Kind: a.Kind, Reliability: a.Reliability, SendLog2: sendLog2, RecvLog2: recvLog2, Rights: a.Rights, Options: a.options(),
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

// options are those of the attributes that are bits.
func (a VIAttributes) options() (o datasheet.EndpointOptions) {
	if a.Promiscuous {
		o |= datasheet.EndpointPromiscuous
	}
	if a.NeedReceives {
		o |= datasheet.EndpointBreaks
	}
	if a.ReceiveQueue != nil {
		o |= datasheet.EndpointShares
	}
	if a.EagerTokens {
		o |= datasheet.EndpointEager
	}
	return o
}

// init makes a queue of depth descriptors over a ring that has room for them.
func (q *workQueue) init(v *VI, side string, cq *CQ, depth int, ring []byte) {
	q.n, q.vi, q.side, q.cq, q.depth, q.holder = v.n, v, side, cq, uint32(depth), q
	q.bytes, q.tokens = ring, datasheet.TokensAt(ring)
	q.posted = make([]posting, len(q.tokens))
	q.mask = uint32(len(q.tokens) - 1)
	q.sends = q == &v.send
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

// Own makes d, which was not posted yet, a descriptor that only this VI takes.
func (v *VI) Own(d *descriptors.Descriptor) { d.Post().Owner = v.key }

// Attributes returns what the VI was created with, or was given by SetAttributes.
func (v *VI) Attributes() VIAttributes { return *v.attributes.Load() }

// SetAttributes gives a VI that is idle another reliability level, maximum transfer
// size, ptag and rights; what else a has must be as it is. It fails with
// ErrInvalidState in another state and with what CreateVI fails with, and then
// changes nothing. Receives that are posted stay posted.
func (v *VI) SetAttributes(ctx context.Context, a VIAttributes) error {
	return v.do(ctx, "set VI attributes", func() error {
		now := v.Attributes()
		a.Kind = cmp.Or(a.Kind, datasheet.KindVI)
		if a.ReceiveQueue != nil {
			a.RecvDepth = now.RecvDepth
		}
		a.EagerTokens, a.NoRoom = now.EagerTokens, now.NoRoom
		if a.Kind != now.Kind || a.Promiscuous != now.Promiscuous || a.SendDepth != now.SendDepth || a.RecvDepth != now.RecvDepth ||
			a.ReceiveQueue != now.ReceiveQueue {
			return hinted(fmt.Errorf("%w: kind and queues of a VI do not change", descriptors.ErrInvalidParameter), "create another VI")
		}
		a.Ptag = v.n.ptagOr(a.Ptag)
		err := a.Ptag.usedFor(v.n, func() error {
			_, err := v.execute(ctx, newCommand(datasheet.OpModifyEndpoint, datasheet.ModifyEndpointBody{Endpoint: v.number,
				Ptag: a.Ptag.Number(), MaxTransfer: a.MaxTransfer, Reliability: a.Reliability, Rights: a.Rights, Options: a.options()}))
			return err
		})
		if err != nil {
			return err
		}
		v.attributes.Swap(&a).Ptag.leave()
		v.n.regions.forget() // work queues remember memory of the old ptag
		return nil
	})
}

// SetPayload writes an entry, 0 to PayloadEntries-1, of the VI's payload table:
// length bytes at address of the region handle, where the device puts the message
// that its demux program gives the entry, instead of the buffers of the receive
// that completes with it. Handle and length 0 empty the entry. It fails with
// ErrInvalidParameter if the memory is not registered for writing with the VI's
// ptag.
func (v *VI) SetPayload(ctx context.Context, entry int, address uint64, handle, length uint32) error {
	return v.do(ctx, "set payload entry", func() error {
		if entry < 0 || entry >= datasheet.PayloadEntries {
			return hinted(fmt.Errorf("%w: entry %d", descriptors.ErrInvalidParameter, entry),
				fmt.Sprintf("a table has entries 0 to %d", datasheet.PayloadEntries-1))
		}
		// Before the device knows: it may use the entry as soon as it does.
		v.recv.allow(length)
		_, err := v.execute(ctx, newCommand(datasheet.OpSetPayload, datasheet.SetPayloadBody{
			Address: address, Endpoint: v.number, Entry: uint32(entry), Handle: handle, Length: length}))
		return err
	})
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
	return v.n.freeDMA(v.rings)
}

func (v *VI) holds(handle uint32) bool { return v.send.holds(handle) || v.recv.holds(handle) }

func (v *VI) lose(address uint64) {
	v.send.lose(address)
	v.recv.lose(address)
}
