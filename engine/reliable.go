package engine

import (
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// reliable is the state of a connected endpoint whose messages are acknowledged.
type reliable struct {
	flow
	nic *transport

	// Sending.
	messages []sending // RDMA operations among them, in the order of their posts
	head     uint32    // the oldest of them that is not complete
	next     uint32    // the next to begin
	numbered uint32    // number of the next message that takes a receive
	limit    uint32    // credit: the peer takes messages below this number
	broken   bool      // next-1 has failed on this side: send no more
	stalled  bool      // something is posted, but there is no credit
	fetched  bool      // the next one's descriptor is here, but it must wait
	eager    bool      // the peer wants no credit to be waited for

	// Receiving.
	receipts []receipt
	wantsAt  uint32 // credit at which the peer has last waited for more, on a wire that loses nothing
	wants    bool   // and it still does

	liveness
	way     *way             // the wire that loses nothing, nil if window is there
	inbound datasheet.Header // what the peer's data frames over it have in common
	shorts  bool             // both ends know short frames
	// heardAck and heardCredit are what the last frame of the peer said.
	heardAck, heardCredit uint32
	*window

	serving *serving // reads of the peer; nil if it may not read
	reading uint32   // reads of the host under way
}

// reliableVI is the kind of VIs whose messages are acknowledged.
type reliableVI struct{ *transport }

// open implements kind. What the peer states of its wire decides whether anything can
// be lost on the way.
func (k reliableVI) open(ep *endpoint, peer *datasheet.ConnectBody) {
	sends := min(windowFrames, int(ep.send.mask)+1)
	receives := min(windowFrames, int(ep.recv.mask)+1)
	r := &reliable{
		flow: flow{c: k.core, ep: ep, una: ep.remote.ourKey, nxt: ep.remote.ourKey, lent: ep.remote.ourKey,
			expect: ep.remote.theirKey, receives: uint32(receives)},
		nic:      k.transport,
		messages: make([]sending, sends), receipts: make([]receipt, receives),
		liveness: liveness{heard: k.now}, eager: peer.Options&datasheet.ConnectBreaks != 0,
	}
	if ep.rights&datasheet.AccessRDMARead != 0 {
		r.serving = &serving{}
	}
	if k.checkWires(); peer.Wire != 0 && peer.Wire == k.wire(ep.remote.mac) {
		r.way = k.wires.use(k.wayTo(ep.remote.mac), peer.Wire)
		ep.delivery, r.wire, r.wantsAt = losslessVI{k}, peer.Wire, ^uint32(0)
		r.inbound = datasheet.Header{Destination: k.mac, Source: ep.remote.mac, EtherType: datasheet.EtherType,
			Version: datasheet.WireVersion, Type: datasheet.FrameData,
			DestinationEndpoint: ep.id, SourceEndpoint: ep.remote.endpoint, Key: ep.remote.ourKey}
		r.shorts, r.told, r.heardAck = k.slots != nil && ep.remote.endpoint <= math.MaxUint16, r.expect, r.una
		k.regions.direct.connected(ep)
	} else {
		ep.delivery, r.window = k, &window{timers: timers{rto: k.timing.Retransmit},
			pathCheck: pathCheck{able: peer.Options&datasheet.ConnectCounts != 0}}
	}
	ep.conn, ep.flow, ep.alive = r, &r.flow, &r.liveness
	if ep.request != nil {
		r.acknowledge(true) // it carries the first credit
	}
}

func (r *reliable) message(n uint32) *sending { return &r.messages[n&uint32(len(r.messages)-1)] }
func (r *reliable) receipt(n uint32) *receipt { return &r.receipts[n&uint32(len(r.receipts)-1)] }

// transmit implements kind: lost frames go first.
func (k reliableVI) transmit(ep *endpoint, budget int) bool {
	r := rel(ep)
	windowed := r.window != nil
	for ; budget > 0; budget-- {
		if windowed && r.resend != 0 {
			psn := r.una + uint32(bits.TrailingZeros64(r.resend))
			f := &r.frames[psn%windowFrames]
			if o := k.tx.sendData(ep, f.m, psn, f.offset, datasheet.FrameAckRequest, true); o != frameSent {
				return o == frameWaiting
			}
			continue
		}
		if windowed && r.nxt-r.una >= windowFrames {
			return false
		}
		var m *sending
		if r.serving != nil && r.serving.due() {
			m = r.answerOrNext()
		} else {
			m = r.upNext()
		}
		if m == nil {
			if windowed && r.stalled {
				k.busy.add(ep)
			}
			return false
		}
		if m.frames != datasheet.FrameData && r.carry(m) {
			continue
		}
		var flags datasheet.FrameFlags
		if windowed && r.nxt-r.una == windowFrames-1 {
			flags = datasheet.FrameAckRequest
		}
		if o := k.tx.sendData(ep, m, r.nxt, m.cut, flags, false); o != frameSent {
			return o == frameWaiting
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
func (r *reliable) upNext() *sending {
	if r.broken {
		return nil
	}
	m := r.message(r.next - 1)
	if r.head == r.next || m.allCut {
		if r.ep.send.posted() == 0 || r.next-r.head >= uint32(len(r.messages)) {
			return nil
		}
		m = r.message(r.next)
		if !r.fetched {
			r.nic.begin(r.ep, m, r.numbered)
		} else {
			r.ep.send.fetched++
		}
		r.stalled = int32(r.limit-r.numbered) <= 0 && m.takesReceive() && (r.wire == 0 || !r.moreCredit())
		if r.fetched = (r.stalled || m.control.bits&unlikeSends != 0) && !r.mayBegin(m); r.fetched {
			r.ep.send.fetched-- // it counts as posted
			return nil
		}
		r.next++
		if m.frames == datasheet.FrameData || m.takesReceive() {
			r.numbered++
		}
	}
	if m.status != 0 {
		r.broken = true
		r.settle()
		return nil
	}
	return m
}

func (k reliableVI) sent(ep *endpoint, m *sending, psn, offset, n, credit uint32, again bool) {
	r := rel(ep)
	r.transmissions++
	if again {
		bit := uint64(1) << (psn - r.una)
		f := &r.frames[psn%windowFrames]
		f.sentAt, f.number = k.now, r.transmissions
		r.resend &^= bit
		r.resent |= bit
		k.count(datasheet.CounterFramesRetransmitted, 1)
	} else {
		r.frames[psn%windowFrames] = cut{m, offset, k.now, r.transmissions}
		m.cut += n
		m.allCut, m.lastPSN = m.cut == m.total, psn
		r.nxt++
		k.busy.add(ep)
	}
	r.tell(credit)
}

func (k reliableVI) failed(ep *endpoint, m *sending, again bool, st datasheet.Status) {
	if m.frames == datasheet.FrameReadResponse {
		k.refuse(ep, m.request, datasheet.EventRDMAReadProtection, &m.segments[0])
		return
	}
	m.status, rel(ep).broken = st, true
	if again {
		// Nothing is wrong with the messages before it.
		k.conns.fail(ep, datasheet.StatusFlushed, datasheet.ResultDescriptor, true)
		return
	}
	rel(ep).settle()
}

// takeAck takes the acknowledgement and the credit that every frame of a
// reliable connection carries. It returns false if they are impossible.
func (r *reliable) takeAck(h *datasheet.Header) bool {
	if r.wire != 0 {
		// The wire may have told more than the peer knew when it sent the frame.
		sound := int32(h.Ack-r.nxt) <= 0
		if sound {
			r.acknowledged(h.Ack, h.Credit)
		}
		return sound
	}
	n := h.Ack - r.una
	if n > r.nxt-r.una {
		// It is an old frame that was overtaken, unless it is far behind.
		return r.una-h.Ack <= 2*windowFrames
	}
	if r.takeCredit(h.Credit) {
		r.probeAt, r.probeGap = 0, 0
	}
	if n > 0 {
		if r.acked|r.resent == 0 {
			r.sample(r.nic.now - r.frames[(h.Ack-1)%windowFrames].sentAt)
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
			r.nic.ready.add(r.ep)
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
		r.nic.ready.add(r.ep)
	}
	return true
}

// moreCredit looks at the credit that the peer gives, and asks for more unless there is.
func (r *reliable) moreCredit() bool {
	to, was := &r.ep.remote, r.limit
	r.limit = r.way.TakeCredit(to.endpoint, to.theirKey, was)
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
	r.rto = min(max(r.srtt+4*r.rttvar, r.nic.timing.Retransmit), r.nic.timing.RetransmitMax)
}

// settleAll completes what acknowledgements say to have arrived. In a round that has
// handed a message to the host it waits for the next one: the host gets the message
// that much sooner, and its answer is sent first.
func (k *transport) settleAll() {
	k.unsettled.keep(func(ep *endpoint) bool {
		if rel(ep) != nil {
			rel(ep).settle()
		}
		if r := rel(ep); r != nil && (ep.send.posted() > 0 || r.next != r.head && !r.message(r.next-1).allCut || r.serving != nil && r.serving.due()) {
			k.ready.add(ep)
		}
		return false
	})
}

// settle completes the messages that have been acknowledged whole, in order.
func (r *reliable) settle() {
	for int32(r.next-r.head) > 0 {
		m := r.message(r.head)
		switch {
		case m.status != 0:
			r.nic.conns.fail(r.ep, m.status, datasheet.ResultDescriptor, true)
			return
		case !r.arrived(m):
			return
		}
		r.delivered(m)
	}
}

// arrived reports whether all of m, which has not failed, has been acknowledged, and, of
// a read, has come.
func (r *reliable) arrived(m *sending) bool {
	return m.allCut && int32(r.una-m.lastPSN) > 0 && m.awaits == 0
}

// delivered completes m, the oldest message.
func (r *reliable) delivered(m *sending) {
	r.head++
	r.nic.count(datasheet.CounterMessagesSent, 1)
	r.nic.complete(r.ep, &r.ep.send, &m.layout, m.total, 0, 0)
}

// deliveredUpTo takes the messages below number, which the peer says it has taken, and
// the operations before them for arrived. It returns false, and takes none, if they were
// not sent, or if the peer has acknowledged more.
func (r *reliable) deliveredUpTo(number uint32) bool {
	oldest, una := r.numbered, r.una
	if r.head != r.next {
		oldest = r.message(r.head).number
	}
	if number-oldest > r.numbered-oldest {
		return false
	}
	for n := r.head; n != r.next; n++ {
		m := r.message(n)
		if int32(number-m.number) <= 0 {
			break
		}
		if !m.allCut {
			return false
		}
		if int32(m.lastPSN-una) >= 0 {
			una = m.lastPSN + 1
		}
	}
	r.una = una
	return true
}

// close implements delivery.
func (k reliableVI) close(ep *endpoint) {
	if r := rel(ep); r != nil && r.way != nil {
		k.wires.leave(r.way)
	}
}

// outstanding implements delivery.
func (k reliableVI) outstanding(ep *endpoint) (posted uint32, unfinished bool) {
	if r := rel(ep); r != nil {
		return r.posted(), r.unfinished()
	}
	return 0, false
}

// flush implements kind.
func (k reliableVI) flush(ep *endpoint, first datasheet.Status) {
	failed := false // behind the first that has failed no other is done, not even a read that has come
	for r := rel(ep); r != nil && int32(r.next-r.head) > 0; {
		m := r.message(r.head)
		switch {
		case m.status != 0:
			first = m.status
		case !failed && r.arrived(m): // it has not been settled yet
			r.delivered(m)
			continue
		}
		r.head++
		k.complete(ep, &ep.send, &m.layout, 0, 0, first)
		first, failed = datasheet.StatusFlushed, true
	}
}

// unfinished reports whether messages are posted that are not known to have
// arrived.
func (r *reliable) unfinished() bool {
	return r != nil && (r.ep.send.posted() > 0 || r.underWay() > 0)
}

// underWay is how many messages have begun and are not known to have arrived.
func (r *reliable) underWay() (count uint32) {
	for n := r.head; n != r.next; n++ {
		if !r.arrived(r.message(n)) {
			count++
		}
	}
	return count
}

// posted is the number behind the last message that the host has posted. Of operations
// that have not arrived, and of what has not been fetched, each counts as one.
func (r *reliable) posted() uint32 {
	n := r.numbered + r.ep.send.posted()
	for i := r.head; i != r.next; i++ {
		if m := r.message(i); !m.takesReceive() && !r.arrived(m) {
			n++
		}
	}
	return n
}

// revoke takes back what has been lent of a region that is no more.
func (k *transport) revoke(handle uint32) {
	inRegion := func(s segment) bool { return s.handle == handle }
	for _, ep := range k.living {
		if !ep.flow.lending() {
			continue
		}
		for r, n := rel(ep), rel(ep).head; int32(r.next-n) > 0; n++ {
			m := r.message(n)
			if m.frames == datasheet.FrameReadRequest || !slices.ContainsFunc(m.segments, inRegion) || r.arrived(m) {
				continue
			}
			if r.wire == 0 {
				k.tx.revoke(ep.id)
			} else {
				// It cannot be sent again, and nothing is wrong with those before it.
				m.status, r.broken = datasheet.StatusProtectionError, true
				k.conns.fail(ep, datasheet.StatusFlushed, datasheet.ResultDescriptor, true)
			}
			break
		}
	}
}

// lastWords takes what the peer says of a connection that it has ended, and why it did. It returns
// false if that cannot be.
func (k *transport) lastWords(ep *endpoint, h *datasheet.Header, reason datasheet.Result) (datasheet.Result, bool) {
	switch r := rel(ep); {
	case !r.deliveredUpTo(h.Message):
		return reason, false
	case reason == datasheet.ResultAborted && h.Extent == r.done:
		return datasheet.ResultSuccess, true // all that it may have cut off is here
	case reason == datasheet.ResultRDMAProtection && !r.refusedAt(h.PSN):
		return reason, false
	}
	return reason, true
}
