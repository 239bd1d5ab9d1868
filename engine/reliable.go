package engine

import (
	"math/bits"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
)

// reliable is the state of a connected endpoint whose messages are
// acknowledged: selective repeat within a window of windowFrames frames
// (SPEC.md 8.4). Bit i of acked, resend and resent stands for PSN una+i.
type reliable struct {
	clock  *clock
	timing *Timing

	// Sending.
	una, nxt uint32 // oldest PSN not acknowledged, next PSN
	acked    uint64 // arrived out of order at the peer
	resend   uint64 // to be sent again
	resent   uint64 // sent again, so of no use to measure the round trip
	frames   [windowFrames]cut
	messages []sending
	head     uint32 // number of the oldest message that is not complete
	next     uint32 // number of the next message to begin
	broken   bool   // message next-1 has failed on this side: send no more
	limit    uint32 // credit: the peer takes messages below this number
	stalled  bool   // something is posted, but there is no credit
	lent     uint32 // PSN behind the last frame whose payload was lent

	// Receiving. Bit i of have stands for PSN expect+1+i.
	expect   uint32
	have     uint64
	passed   place               // of frame expect-1
	places   [windowFrames]place // of those that have arrived out of order, by PSN
	receipts []receipt
	done     uint32 // number of the oldest message that is not complete
	offered  uint32 // credit that the peer was told last
	owed     bool   // an acknowledgement
	owedNow  bool
	owedStep uint64
	twice    uint32 // data frames that have come once more

	recovery
	timers
}

// timers of a reliable connection. Times are the engine's clock.
type timers struct {
	rto, srtt, rttvar time.Duration
	retransmitAt      time.Duration // zero: not running
	probeAt           time.Duration // zero: not running
	probeGap          time.Duration // between probes for credit that are answered
	timeoutAt         time.Duration // when all frames are sent again, while retransmitAt is running
	backOff           time.Duration // until the next question, once there have been maxProbes
	probes            int           // that have not been answered
	asked             bool          // for credit, and none has come
	liveness
}

// cut is a frame of a message that has been sent.
type cut struct {
	message uint32
	offset  uint32
	sentAt  time.Duration
	number  uint64 // of the transmission
}

// reliableVI is the kind of VIs whose messages are acknowledged.
type reliableVI struct{ vi }

func (reliableVI) open(e *Engine, ep *endpoint, _ *descriptors.ConnectBody) {
	sends := min(windowFrames, int(ep.send.depth()))
	receives := min(windowFrames, int(ep.recv.depth()))
	ep.rel = &reliable{
		clock: &e.clock, timing: &e.timing,
		una: ep.remote.ourKey, nxt: ep.remote.ourKey, lent: ep.remote.ourKey, expect: ep.remote.theirKey,
		messages: make([]sending, sends), receipts: make([]receipt, receives),
		timers: timers{rto: e.timing.Retransmit, liveness: liveness{heard: e.now}},
	}
	e.fresh.add(ep)
}

func (r *reliable) message(n uint32) *sending { return &r.messages[n&uint32(len(r.messages)-1)] }
func (r *reliable) receipt(n uint32) *receipt { return &r.receipts[n&uint32(len(r.receipts)-1)] }

// credit is the first message number for which the endpoint has no receive.
func (e *Engine) credit(ep *endpoint) uint32 {
	return ep.rel.done + (ep.recv.producer - ep.recv.completed)
}

// transmit implements kind: lost frames first.
func (reliableVI) transmit(e *Engine, ep *endpoint, budget int) bool {
	r, q := ep.rel, &ep.send
	for ; budget > 0; budget-- {
		if r.resend != 0 {
			psn := r.una + uint32(bits.TrailingZeros64(r.resend))
			f := &r.frames[psn%windowFrames]
			if o := e.sendData(ep, r.message(f.message), psn, f.offset, descriptors.FrameAckRequest, true); o != frameSent {
				return o == frameWaiting
			}
			continue
		}
		if r.nxt-r.una >= windowFrames || r.broken {
			return false
		}
		m := r.message(r.next - 1)
		if r.head == r.next || m.allCut {
			if q.posted() == 0 || r.next-r.head >= uint32(len(r.messages)) {
				return false
			}
			if int32(r.limit-r.next) <= 0 {
				r.stalled = true
				e.busy.add(ep)
				return false
			}
			r.stalled = false
			m = r.message(r.next)
			t, st := e.regions.token(q, q.fetched)
			q.fetched++
			e.begin(ep, m, t, st, r.next)
			r.next++
		}
		if m.status != 0 {
			r.broken = true
			e.settle(ep)
			return false
		}
		var flags descriptors.FrameFlags
		if r.nxt-r.una == windowFrames-1 {
			flags = descriptors.FrameAckRequest
		}
		if o := e.sendData(ep, m, r.nxt, m.cut, flags, false); o != frameSent {
			return o == frameWaiting
		}
	}
	return true
}

func (reliableVI) sent(e *Engine, ep *endpoint, m *sending, psn, offset, n, credit uint32, again bool) {
	r := ep.rel
	r.transmissions++
	if again {
		bit := uint64(1) << (psn - r.una)
		f := &r.frames[psn%windowFrames]
		f.sentAt, f.number = e.now, r.transmissions
		r.resend &^= bit
		r.resent |= bit
		e.count(descriptors.CounterFramesRetransmitted, 1)
	} else {
		r.frames[psn%windowFrames] = cut{m.number, offset, e.now, r.transmissions}
		m.cut += n
		m.allCut, m.lastPSN = m.cut == m.total, psn
		r.nxt++
		e.busy.add(ep)
	}
	r.owed, r.offered = false, credit
}

func (reliableVI) failed(e *Engine, ep *endpoint, m *sending, again bool, st descriptors.Status) {
	m.status, ep.rel.broken = st, true
	if again {
		// Nothing is wrong with the messages before it.
		e.fail(ep, descriptors.StatusFlushed, descriptors.ResultDescriptor, true)
		return
	}
	e.settle(ep)
}

// takeAck takes the acknowledgement and the credit that every frame of a
// reliable connection carries. It returns false if they are impossible.
func (e *Engine) takeAck(ep *endpoint, h *descriptors.Header) bool {
	r := ep.rel
	n := h.Ack - r.una
	if n > r.nxt-r.una {
		// An old frame that was overtaken, or nonsense.
		return r.una-h.Ack <= 2*windowFrames
	}
	if int32(h.Credit-r.limit) > 0 {
		r.limit, r.probeAt, r.probeGap = h.Credit, 0, 0
		if r.stalled {
			e.ready.add(ep)
		}
	}
	if n > 0 {
		if r.acked|r.resent == 0 {
			r.sample(e.now - r.frames[(h.Ack-1)%windowFrames].sentAt)
		} else {
			r.arrivals(n, 0)
		}
		r.una = h.Ack
		r.acked, r.resend, r.resent = r.acked>>n, r.resend>>n, r.resent>>n
		r.retransmitAt = 0
		e.unsettled.add(ep)
	}
	if r.acked|r.resent != 0 || h.Type == descriptors.FrameAck && (h.Extent|h.Offset != 0 || h.Message != r.duplicates) {
		r.learn(h)
		if r.resend != 0 {
			e.ready.add(ep)
		}
	}
	return true
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
	r.rto = min(max(r.srtt+4*r.rttvar, r.timing.Retransmit), r.timing.RetransmitMax)
}

// settleAll completes what acknowledgements say to have arrived. In a round that has
// handed a message to the host it waits for the next one: the host gets the message
// that much sooner, and its answer is sent first.
func (e *Engine) settleAll() {
	for i, ep := range e.unsettled.members {
		e.unsettled.members[i], ep.listed = nil, ep.listed&^onUnsettled
		if ep.rel == nil {
			continue
		}
		e.settle(ep)
		if r := ep.rel; r != nil && (ep.send.posted() > 0 || r.next != r.head && !r.message(r.next-1).allCut) {
			e.ready.add(ep)
		}
	}
	e.unsettled.members = e.unsettled.members[:0]
}

// settle completes the messages that have been acknowledged whole, in order.
func (e *Engine) settle(ep *endpoint) {
	r := ep.rel
	for int32(r.next-r.head) > 0 {
		m := r.message(r.head)
		switch {
		case m.status != 0:
			e.fail(ep, m.status, descriptors.ResultDescriptor, true)
			return
		case !r.arrived(m):
			return
		}
		e.delivered(ep, m)
	}
}

// arrived reports whether all of m, which has not failed, has been acknowledged.
func (r *reliable) arrived(m *sending) bool { return m.allCut && int32(r.una-m.lastPSN) > 0 }

// delivered completes m, the oldest message.
func (e *Engine) delivered(ep *endpoint, m *sending) {
	ep.rel.head++
	e.count(descriptors.CounterMessagesSent, 1)
	e.cqs.complete(ep, &ep.send, m.token, m.total, 0, 0)
}

// deliveredUpTo completes the messages below number, which the peer says it has
// taken. It returns false, and completes none, if they were not sent, or if the
// peer has acknowledged more.
func (e *Engine) deliveredUpTo(ep *endpoint, number uint32) bool {
	r := ep.rel
	if number-r.head > r.next-r.head || number != r.head && !r.message(number-1).allCut {
		return false
	}
	for int32(number-r.head) > 0 {
		e.delivered(ep, r.message(r.head))
	}
	return true
}
