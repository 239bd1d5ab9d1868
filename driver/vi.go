package driver

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver/internal/dma"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/hotlock"
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
	rings      *dma.Buffer

	alter sync.Mutex // held while the attributes change, or descriptors are made
	pools []*Memory  // of NewDescriptors; guarded by alter
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

// Held gives access to a queue whose lock also guards the caller's state. PostHeld, DoneHeld and DoneBatchHeld
// need the lock. It must not be held across anything that blocks.
type Held struct {
	*hotlock.Mutex
	*workQueue
}

// Held returns the queues of the VI.
func (v *VI) Held() (send, recv Held) {
	return Held{&v.send.mu, &v.send}, Held{&v.recv.mu, &v.recv}
}

// written reports whether d is a receive that an RDMA write of the peer has ended.
func (v *VI) written(d *descriptors.Descriptor) bool {
	a := v.Attributes()
	return a.RDMAWrite && d.Length() <= a.MaxTransfer &&
		d.Status()&datasheet.StatusOpMask == datasheet.StatusOpRemoteRDMAWrite
}

// VIAttributes are given when a VI is created. The zero value is a reliable VI
// with the defaults below.
type VIAttributes struct {
	// Reliability level; zero is ReliableDelivery. Must be the same at both ends
	// of a connection.
	Reliability datasheet.Reliability
	// MaxTransfer is the largest message in bytes, 1 to the NIC's limit; zero is
	// DefaultMaxTransfer. Must be the same at both ends.
	MaxTransfer uint32
	// Ptag that the VI's memory must have; nil is the NIC's default.
	Ptag *Ptag
	// RDMAWrite and RDMARead let the other end access memory through this VI: regions
	// with its ptag that are registered with the same right. The other end learns it
	// when it connects (Remote), and its NIC sends nothing that is not allowed.
	RDMAWrite, RDMARead bool
	// NeedReceives, of a reliable VI, breaks the connection when a message finds no
	// receive, as VIA has it: EventReceiveQueueEmpty here, StatusRemoteDescriptor at the
	// other end. Without it the other end's NIC keeps the message until there is one.
	NeedReceives bool
	// SendDepth and RecvDepth are the numbers of descriptors that the queues hold, 1 to the
	// NIC's limit; zero is DefaultDepth. The NIC may round up.
	SendDepth, RecvDepth int
	// ReceiveQueue is one that several VIs share, from NIC.CreateReceiveQueue, in place of
	// a receive queue of the VI's own, which VIA does not have. RecvDepth is not used
	// then, and a nil Ptag is the queue's.
	ReceiveQueue *ReceiveQueue
	// EagerTokens makes the NIC hold what announces a message before it is posted, as eager
	// memory has the message and its descriptor (SPEC.md 4.4), and NoRoom says what becomes of
	// that if the NIC has no room. Attributes tells whether it does. SetAttributes leaves both.
	// Not with Frames.
	EagerTokens bool
	NoRoom      NoRoom
	// Frames makes an endpoint for raw Ethernet frames instead of a VI, which VIA
	// does not have. It is open at once and cannot be connected; each send is one
	// frame, from its destination address on and without the check sequence, and
	// each receive takes one. Reliability is Unreliable, and MaxTransfer the
	// largest frame; zero is the NIC's MTU. The oldest such endpoint takes the frames that come
	// for this station or a group, unless a control program names another (SPEC.md 8.9).
	Frames Frames

	shared bool // it is a receive queue that VIs share
}

// Frames says whether an endpoint sends and takes raw Ethernet frames, and which
// ones. It never sees the frames of VIs.
type Frames uint8

const (
	// NoFrames: it is a VI.
	NoFrames Frames = iota
	// StationFrames: those for this NIC or a group.
	StationFrames
	// AllFrames: those for others too.
	AllFrames
)

// Defaults of VIAttributes.
const (
	// DefaultMaxTransfer in bytes must be handled by every NIC of VIA, so that any
	// two ends agree on it.
	DefaultMaxTransfer = 32 << 10
	// DefaultDepth is the number of descriptors a work queue holds if nothing else
	// is said.
	DefaultDepth = 64
)

func (a *VIAttributes) kind() datasheet.Kind {
	switch {
	case a.shared:
		return datasheet.KindReceiveQueue
	case a.Frames != NoFrames:
		return datasheet.KindFrame
	}
	return datasheet.KindVI
}

// options are those of the attributes that are bits.
func (a *VIAttributes) options() (o datasheet.EndpointOptions) {
	for _, option := range []struct {
		is  bool
		bit datasheet.EndpointOptions
	}{{a.Frames == AllFrames, datasheet.EndpointPromiscuous}, {a.NeedReceives, datasheet.EndpointBreaks},
		{a.ReceiveQueue != nil, datasheet.EndpointShares}, {a.EagerTokens, datasheet.EndpointEager}} {
		if option.is {
			o |= option.bit
		}
	}
	return o
}

// ReceiveQueue is a receive queue that several VIs share: whichever gets a message takes
// the next receive. VIA does not have it. Its receives complete to its CQ, which gives out
// VI and descriptor (Completion). They complete in the order of their messages on each VI,
// and in any order between VIs.
type ReceiveQueue struct {
	v *VI // the NIC has it as an endpoint that is never connected
}

// source is the receive queue that v shares, nil if it has one of its own.
func (v *VI) source() *workQueue {
	if from := v.attributes.Load().ReceiveQueue; from != nil {
		return &from.v.recv
	}
	return nil
}

// Ptag that the queue's descriptors have.
func (q *ReceiveQueue) Ptag() *Ptag { return q.v.Attributes().Ptag }

// use counts one more VI that shares q, which may be nil, and leave undoes it.
func (q *ReceiveQueue) use(n *NIC) error {
	if q == nil {
		return nil
	}
	if err := q.v.leaving.use(n); err != nil {
		return fmt.Errorf("receive queue: %w", err)
	}
	return nil
}

func (q *ReceiveQueue) leave() {
	if q != nil {
		q.v.leaving.leave(q.v.n)
	}
}
