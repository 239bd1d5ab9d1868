package driver

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

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
	// EagerTokens has the NIC hold what announces a message before it is posted, as eager
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
