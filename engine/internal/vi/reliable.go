package vi

import (
	"math"
	"math/bits"
	"time"

	"github.com/trapeze-nic/trapeze/engine/internal/core"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// reliable is the state of a connected endpoint whose messages are acknowledged.
type reliable struct {
	core.Flow
	nic *Transport

	// Sending.
	messages []core.Sending // RDMA operations among them, in the order of their posts
	head     uint32         // the oldest of them that is not complete
	next     uint32         // the next to begin
	numbered uint32         // number of the next message that takes a receive
	limit    uint32         // credit: the peer takes messages below this number
	broken   bool           // next-1 has failed on this side: send no more
	stalled  bool           // something is posted, but there is no credit
	fetched  bool           // the next one's descriptor is here, but it must wait
	eager    bool           // the peer wants no credit to be waited for

	// Receiving.
	receipts []core.Receipt
	wantsAt  uint32 // credit at which the peer has last waited for more, on a wire that loses nothing
	wants    bool   // and it still does

	core.Liveness
	way      *way   // the wire that loses nothing, nil if window is there
	flying   bool   // it is in ways.flying
	lastMark uint32 // of the wire, behind the newest message
	shorts   bool   // both ends know short frames
	path     *Path  // nil unless they do
	// heardAck and heardCredit are those of the peer's last frame.
	heardAck, heardCredit uint32
	*window

	serving *serving // reads of the peer; nil if it may not read
	reading uint32   // reads of the host under way
}

// Reliable is the kind of VIs whose messages are acknowledged.
type Reliable struct{ *Transport }

// Open implements core.Delivery. What the peer states of its wire decides whether anything can
// be lost on the way.
func (k Reliable) Open(ep *core.Endpoint, peer *datasheet.ConnectBody) {
	sends := min(core.WindowFrames, int(ep.Send.Mask)+1)
	receives := min(core.WindowFrames, int(ep.Recv.Mask)+1)
	r := &reliable{
		Flow: core.Flow{C: k.Core, Ep: ep, Una: ep.Remote.OurKey, Nxt: ep.Remote.OurKey, Lent: ep.Remote.OurKey,
			Expect: ep.Remote.TheirKey, Receives: uint32(receives)},
		nic:      k.Transport,
		messages: make([]core.Sending, sends), receipts: make([]core.Receipt, receives),
		Liveness: core.Liveness{Heard: k.Now}, eager: peer.Options&datasheet.ConnectBreaks != 0,
	}
	if ep.Rights&datasheet.AccessRDMARead != 0 {
		r.serving = &serving{}
	}
	if k.CheckWires(); peer.Wire != 0 && peer.Wire == k.Wire(ep.Remote.MAC) {
		r.way = k.wires.use(k.WayTo(ep.Remote.MAC), peer.Wire)
		ep.Delivery, r.Wire, r.wantsAt = losslessVI{k}, peer.Wire, ^uint32(0)
		r.shorts, r.Told, r.heardAck = ep.Remote.Endpoint <= math.MaxUint16, r.Expect, r.Una
		if r.shorts {
			r.path = k.PathOf(ep)
		}
		k.Regions.Direct.Connected(ep)
	} else {
		ep.Delivery, r.window = k, &window{rto: k.Timing.Retransmit}
	}
	ep.Conn, ep.Flow, ep.Alive = r, &r.Flow, &r.Liveness
	if r.path != nil {
		r.path.open(r)
	}
	if ep.Request != nil {
		r.Acknowledge(true) // it carries the first credit
	}
}

func (r *reliable) message(n uint32) *core.Sending { return &r.messages[n&uint32(len(r.messages)-1)] }
func (r *reliable) receipt(n uint32) *core.Receipt { return &r.receipts[n&uint32(len(r.receipts)-1)] }

// Transmit implements core.Delivery: lost frames go first.
func (k Reliable) Transmit(ep *core.Endpoint, budget int) bool {
	r := rel(ep)
	windowed := r.window != nil
	for ; budget > 0; budget-- {
		if r.path != nil && r.path.send() {
			continue
		}
		if windowed && r.resend != 0 {
			psn := r.Una + uint32(bits.TrailingZeros64(r.resend))
			f := &r.frames[psn%core.WindowFrames]
			if o := k.Tx.SendData(ep, f.m, psn, f.offset, datasheet.FrameAckRequest, true); o != core.FrameSent {
				return o == core.FrameWaiting
			}
			continue
		}
		if windowed && r.Nxt-r.Una >= core.WindowFrames {
			return false
		}
		var m *core.Sending
		if r.serving != nil && r.serving.due() {
			m = r.answerOrNext()
		} else {
			m = r.upNext()
		}
		if m == nil {
			if windowed && r.stalled {
				k.Busy.Add(ep)
			}
			return false
		}
		if m.Frames != datasheet.FrameData && r.carry(m) {
			continue
		}
		var flags datasheet.FrameFlags
		if windowed && r.Nxt-r.Una == core.WindowFrames-1 {
			flags = datasheet.FrameAckRequest
		}
		if o := k.Tx.SendData(ep, m, r.Nxt, m.Cut, flags, false); o != core.FrameSent {
			return o == core.FrameWaiting
		}
		if rel(ep) != r {
			return false
		}
	}
	return true
}

// upNext is the message of the host that is to send a frame: the one that has been begun,
// or else the next, for which it takes a free place and credit. It is nil if there is
// none.
func (r *reliable) upNext() *core.Sending {
	if r.broken {
		return nil
	}
	m := r.message(r.next - 1)
	if r.head == r.next || m.AllCut {
		if r.Ep.Send.Posted() == 0 || r.next-r.head >= uint32(len(r.messages)) {
			return nil
		}
		m = r.message(r.next)
		if !r.fetched {
			r.nic.begin(r.Ep, m, r.numbered)
		} else {
			r.Ep.Send.Fetched++
		}
		r.stalled = int32(r.limit-r.numbered) <= 0 && m.TakesReceive() && (r.Wire == 0 || !r.moreCredit())
		if r.fetched = (r.stalled || m.Control.Bits&core.UnlikeSends != 0) && !r.mayBegin(m); r.fetched {
			r.Ep.Send.Fetched-- // it counts as posted
			return nil
		}
		r.next++
		if m.Frames == datasheet.FrameData || m.TakesReceive() {
			r.numbered++
		}
	}
	if m.Status != 0 {
		r.broken = true
		r.settle()
		return nil
	}
	return m
}

func (k Reliable) Sent(ep *core.Endpoint, m *core.Sending, psn, offset, n, credit uint32, retry bool) {
	r := rel(ep)
	r.transmissions++
	if retry {
		bit := uint64(1) << (psn - r.Una)
		f := &r.frames[psn%core.WindowFrames]
		f.sentAt, f.number = k.Now, r.transmissions
		r.resend &^= bit
		r.resent |= bit
		k.Count(datasheet.CounterFramesRetransmitted, 1)
	} else {
		r.frames[psn%core.WindowFrames] = cut{m, offset, k.Now, r.transmissions}
		m.Cut += n
		m.AllCut, m.LastPSN = m.Cut == m.Total, psn
		r.Nxt++
		k.Busy.Add(ep)
	}
	r.Tell(credit)
}

func (k Reliable) Failed(ep *core.Endpoint, m *core.Sending, retry bool, st datasheet.Status) {
	if m.Frames == datasheet.FrameReadResponse {
		k.refuse(ep, m.Request, datasheet.EventRDMAReadProtection, &m.Segments[0])
		return
	}
	m.Status, rel(ep).broken = st, true
	if retry {
		// Nothing is wrong with the messages before it.
		k.Conns.Fail(ep, datasheet.StatusFlushed, datasheet.ResultDescriptor, true)
		return
	}
	rel(ep).settle()
}

// takeAck takes the acknowledgement and the credit that every frame of a
// reliable connection carries. It returns false if they are impossible.
func (r *reliable) takeAck(h *datasheet.Header) bool {
	if r.Wire != 0 {
		// The wire may have told more than the peer knew when it sent the frame.
		sound := int32(h.Ack-r.Nxt) <= 0
		if sound {
			r.acknowledged(h.Ack, h.Credit)
		}
		return sound
	}
	n := h.Ack - r.Una
	if n > r.Nxt-r.Una {
		// It is an old frame that was overtaken, unless it is far behind.
		return r.Una-h.Ack <= 2*core.WindowFrames
	}
	if r.takeCredit(h.Credit) {
		r.probeAt, r.probeGap = 0, 0
	}
	if n > 0 {
		if r.acked|r.resent == 0 {
			r.sample(r.nic.Now - r.frames[(h.Ack-1)%core.WindowFrames].sentAt)
		} else {
			r.arrivals(n, 0)
		}
		r.arrivedUpTo(h.Ack)
		r.acked, r.resend, r.resent = r.acked>>n, r.resend>>n, r.resent>>n
		r.retransmitAt = 0
	}
	if r.acked|r.resent != 0 || h.Type == datasheet.FrameAck && (h.Extent|h.Offset != 0 || h.Message != r.duplicates) {
		r.learn(h)
		if r.resend != 0 {
			r.nic.Ready.Add(r.Ep)
		}
	}
	return true
}

// takeCredit takes the credit of a frame. It reports whether there is more.
func (r *reliable) takeCredit(credit uint32) bool {
	if int32(credit-r.limit) <= 0 {
		return false
	}
	r.limit = credit
	if r.stalled {
		r.nic.Ready.Add(r.Ep)
	}
	return true
}

// moreCredit looks at the credit that the peer gives, and asks for more unless there is.
func (r *reliable) moreCredit() bool {
	to, was := &r.Ep.Remote, r.limit
	r.limit = r.way.TakeCredit(to.Endpoint, to.TheirKey, was)
	return r.limit != was
}

// sample feeds a round trip into the retransmission timeout (RFC 6298, 2).
func (r *reliable) sample(rtt time.Duration) {
	if r.srtt == 0 {
		r.srtt, r.rttvar = rtt, rtt/2
	} else {
		d := r.srtt - rtt
		if d < 0 {
			d = -d
		}
		r.rttvar += (d - r.rttvar) / 4
		r.srtt += (rtt - r.srtt) / 8
	}
	r.rto = min(max(r.srtt+4*r.rttvar, r.nic.Timing.Retransmit), r.nic.Timing.RetransmitMax)
}

// SettleAll completes what acknowledgements say to have arrived. In a round that has
// handed a message to the host it waits for the next one: the host gets the message
// that much sooner, and its answer is sent first.
func (k *Transport) SettleAll() {
	k.Unsettled.Keep(func(ep *core.Endpoint) bool {
		r := rel(ep)
		if r == nil {
			return false
		}
		if r.settle(); ep.Flow != nil && (ep.Send.Posted() > 0 || r.next != r.head && !r.message(r.next-1).AllCut || r.serving != nil && r.serving.due()) {
			k.Ready.Add(ep)
		}
		return false
	})
}

// settle completes the messages that have been acknowledged whole, in order.
func (r *reliable) settle() {
	if p := r.path; p != nil && p.head != p.next {
		if p.reap(r.way.Taken()); p.head != p.next {
			return
		}
	}
	for int32(r.next-r.head) > 0 {
		m := r.message(r.head)
		switch {
		case m.Status != 0:
			r.nic.Conns.Fail(r.Ep, m.Status, datasheet.ResultDescriptor, true)
			return
		case !r.arrived(m):
			return
		}
		r.delivered(m)
	}
}

// arrived reports whether all of m, which has not failed, has been acknowledged, and, of
// a read, has come.
func (r *reliable) arrived(m *core.Sending) bool {
	return m.AllCut && int32(r.Una-m.LastPSN) > 0 && m.Awaits == 0
}

// delivered completes m, the oldest message.
func (r *reliable) delivered(m *core.Sending) {
	if p := r.path; p != nil && p.head != p.next {
		p.reap(p.sends[(p.next-1)&p.Ep.Send.Mask].mark) // they were before it
	}
	r.head++
	r.nic.Count(datasheet.CounterMessagesSent, 1)
	r.Ep.Kind.Format.Complete(r.Ep, &r.Ep.Send, &m.Layout, m.Total, 0, 0)
}

// rel is the state of a reliable connection, nil if the endpoint has none.
func rel(ep *core.Endpoint) *reliable {
	r, _ := ep.Conn.(*reliable)
	return r
}

// ahead is the number at or behind known, by less than 2^16, of which bits 15:0 are low.
func ahead(known uint32, low uint16) uint32 { return known + uint32(low-uint16(known)) }
